//! The part of Pulsar's admin REST API that tests use. Topics are given by their full names.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::time::Duration;
use ureq::http::header::LOCATION;
use ureq::{Agent, Body, http::Response};

/// The admin REST API of one broker.
#[derive(Clone, Debug)]
pub struct Admin {
    base: String,
    token: Option<String>,
    agent: Agent,
}

impl Admin {
    /// The API at `http://HOST:PORT`; with a token if the broker demands one.
    pub fn new(base: &str, token: Option<&str>) -> Self {
        // A broker answers for a topic that it does not own with a redirect, which a library follows for GET only.
        let agent = Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(30)))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .build()
            .into();
        Self { base: base.trim_end_matches('/').to_owned(), token: token.map(str::to_owned), agent }
    }

    /// Whether the broker has started and serves.
    pub fn is_serving(&self) -> bool {
        self.get("brokers/ready").is_ok()
    }

    /// Names of the clusters.
    pub fn clusters(&self) -> Result<Vec<String>> {
        strings(&self.get("clusters")?)
    }

    /// `HOST:PORT` (admin) of the live brokers of a cluster.
    pub fn brokers(&self, cluster: &str) -> Result<Vec<String>> {
        strings(&self.get(&format!("brokers/{cluster}"))?)
    }

    /// `TENANT/NAMESPACE` of every namespace of a tenant.
    pub fn namespaces(&self, tenant: &str) -> Result<Vec<String>> {
        strings(&self.get(&format!("namespaces/{tenant}"))?)
    }

    /// Makes a tenant that may use the cluster.
    pub fn create_tenant(&self, tenant: &str, cluster: &str) -> Result<()> {
        let body = json!({ "adminRoles": [], "allowedClusters": [cluster] });
        self.send("PUT", &format!("tenants/{tenant}"), Some(&body)).map(drop)
    }

    /// Makes a namespace, `TENANT/NAMESPACE`.
    pub fn create_namespace(&self, namespace: &str) -> Result<()> {
        self.send("PUT", &format!("namespaces/{namespace}"), None).map(drop)
    }

    /// Sets one policy of a namespace, such as `deduplication` or `retention`, to a JSON value.
    pub fn set_policy(&self, namespace: &str, policy: &str, value: &Value) -> Result<()> {
        self.send("POST", &format!("namespaces/{namespace}/{policy}"), Some(value)).map(drop)
    }

    /// Makes an unpartitioned topic.
    pub fn create_topic(&self, topic: &str) -> Result<()> {
        self.send("PUT", &path(topic)?, None).map(drop)
    }

    /// Makes a partitioned topic.
    pub fn create_partitioned_topic(&self, topic: &str, partitions: u32) -> Result<()> {
        self.send("PUT", &format!("{}/partitions", path(topic)?), Some(&partitions.into())).map(drop)
    }

    /// Adds partitions to a partitioned topic: `partitions` is the new number.
    pub fn update_partitions(&self, topic: &str, partitions: u32) -> Result<()> {
        self.send("POST", &format!("{}/partitions", path(topic)?), Some(&partitions.into())).map(drop)
    }

    /// Number of partitions; 0 for a topic without.
    pub fn partitions(&self, topic: &str) -> Result<u64> {
        let found = self.get(&format!("{}/partitions", path(topic)?))?;
        found["partitions"].as_u64().with_context(|| format!("no number of partitions in {found}"))
    }

    /// Statistics of an unpartitioned topic or of one partition, with the exact backlog.
    pub fn stats(&self, topic: &str) -> Result<Value> {
        self.get(&format!("{}/stats?getPreciseBacklog=true", path(topic)?))
    }

    /// Messages a subscription has not acknowledged, over all partitions of a topic.
    pub fn backlog(&self, topic: &str, subscription: &str) -> Result<u64> {
        let path = path(topic)?;
        let stats = match self.partitions(topic)? {
            0 => self.stats(topic)?,
            _ => self.get(&format!("{path}/partitioned-stats?getPreciseBacklog=true"))?,
        };
        let backlog = &stats["subscriptions"][subscription]["msgBacklog"];
        backlog.as_u64().with_context(|| format!("{topic} has no subscription {subscription}"))
    }

    /// Which broker (`pulsar://HOST:PORT`) owns a topic; it is assigned to one if needed.
    pub fn owner(&self, topic: &str) -> Result<String> {
        let path = path(topic)?;
        let url = format!("{}/lookup/v2/topic/{path}", self.base);
        let answer = self.request("GET", url, None)?;
        let owner = answer["brokerUrl"].as_str();
        owner.map(str::to_owned).with_context(|| format!("no owner in {answer}"))
    }

    /// Takes a topic from its broker; clients look it up again.
    pub fn unload_topic(&self, topic: &str) -> Result<()> {
        self.send("PUT", &format!("{}/unload", path(topic)?), None).map(drop)
    }

    /// Takes every bundle of a namespace from its broker.
    pub fn unload_namespace(&self, namespace: &str) -> Result<()> {
        self.send("PUT", &format!("namespaces/{namespace}/unload"), None).map(drop)
    }

    /// Takes one bundle, `0x00000000_0x20000000`, from its broker.
    pub fn unload_bundle(&self, namespace: &str, bundle: &str) -> Result<()> {
        self.send("PUT", &format!("namespaces/{namespace}/{bundle}/unload"), None).map(drop)
    }

    /// The bundle of a topic.
    pub fn bundle(&self, topic: &str) -> Result<String> {
        let url = format!("{}/lookup/v2/topic/{}/bundle", self.base, path(topic)?);
        let answer = self.request("GET", url, None)?;
        // The one answer that is plain text.
        Ok(answer.as_str().map_or_else(|| answer.to_string(), str::to_owned))
    }

    /// Ends a topic: it takes no more messages.
    pub fn terminate(&self, topic: &str) -> Result<()> {
        self.send("POST", &format!("{}/terminate", path(topic)?), None).map(drop)
    }

    /// Deletes an unpartitioned topic, in use or not.
    pub fn delete_topic(&self, topic: &str) -> Result<()> {
        self.send("DELETE", &format!("{}?force=true", path(topic)?), None).map(drop)
    }

    /// Deletes a partitioned topic, in use or not.
    pub fn delete_partitioned_topic(&self, topic: &str) -> Result<()> {
        self.send("DELETE", &format!("{}/partitions?force=true", path(topic)?), None).map(drop)
    }

    /// Any GET below `/admin/v2/`.
    pub fn get(&self, path: &str) -> Result<Value> {
        self.send("GET", path, None)
    }

    /// Any request below `/admin/v2/`. An empty answer is `null`, one that is not JSON a string.
    ///
    /// Errors: a status other than 2xx, with the broker's reason.
    pub fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        self.request(method, format!("{}/admin/v2/{path}", self.base), body)
    }

    fn request(&self, method: &str, mut url: String, body: Option<&Value>) -> Result<Value> {
        for _ in 0..5 {
            let mut answer = self.once(method, &url, body).with_context(|| format!("{method} {url}"))?;
            let status = answer.status();
            if status.is_redirection() {
                let target = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
                url = target.with_context(|| format!("{method} {url}: redirected nowhere"))?.to_owned();
                continue;
            }
            let text = answer.body_mut().read_to_string().with_context(|| format!("{method} {url}"))?;
            if !status.is_success() {
                bail!("{method} {url}: {status} {text}");
            }
            return Ok(match text.as_str() {
                "" => Value::Null,
                text => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
            });
        }
        bail!("{method} {url}: too many redirects")
    }

    fn once(&self, method: &str, url: &str, body: Option<&Value>) -> Result<Response<Body>> {
        let mut request = ureq::http::Request::builder().method(method).uri(url);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        Ok(match body {
            Some(body) => {
                let request = request.header("content-type", "application/json");
                self.agent.run(request.body(body.to_string())?)?
            }
            None => self.agent.run(request.body(())?)?,
        })
    }
}

/// `persistent://public/default/t` as the API writes it: `persistent/public/default/t`, percent-encoded.
fn path(topic: &str) -> Result<String> {
    let (domain, name) =
        topic.split_once("://").with_context(|| format!("{topic} is not a full topic name"))?;
    let mut path = format!("{domain}/");
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                path.push(char::from(byte))
            }
            _ => path += &format!("%{byte:02X}"),
        }
    }
    Ok(path)
}

fn strings(value: &Value) -> Result<Vec<String>> {
    serde_json::from_value(value.clone()).with_context(|| format!("not a list of names: {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_name_becomes_a_path() {
        assert_eq!(path("persistent://a/b/c-partition-1").unwrap(), "persistent/a/b/c-partition-1");
        assert_eq!(path("persistent://a/b/é 1").unwrap(), "persistent/a/b/%C3%A9%201");
        assert!(path("t").is_err());
    }
}
