//! The one request to a cluster's admin API that the demo makes.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::exit::{AdminError, UsageError};

/// Creates `topic` with `partitions` partitions. A topic that exists is left as it is.
pub(super) async fn create_partitioned_topic(
    admin_url: String,
    topic: &str,
    partitions: u32,
    token: Option<String>,
) -> Result<()> {
    let url = format!("{}/admin/v2/{}/partitions", admin_url.trim_end_matches('/'), path(topic)?);
    let request = move || put(&url, partitions, token);
    tokio::task::spawn_blocking(request).await.context("the request to the admin API panicked")?
}

/// `persistent://tenant/namespace/name` as `persistent/tenant/namespace/name`; short names are in public/default.
fn path(topic: &str) -> Result<String> {
    let (domain, rest) = topic.split_once("://").unwrap_or(("persistent", topic));
    let parts: Vec<&str> = rest.split('/').collect();
    let (tenant, namespace, name) = match parts[..] {
        [name] => ("public", "default", name),
        [tenant, namespace, name] => (tenant, namespace, name),
        _ => return Err(UsageError(format!("{topic:?} is no topic name")).into()),
    };
    let encoded: String = name.bytes().fold(String::new(), |mut text, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => text.push(byte as char),
            _ => text += &format!("%{byte:02X}"),
        }
        text
    });
    Ok(format!("{domain}/{tenant}/{namespace}/{encoded}"))
}

fn put(url: &str, partitions: u32, token: Option<String>) -> Result<()> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(20)))
        .build()
        .into();
    let mut request = agent.put(url).header("Content-Type", "application/json");
    if let Some(token) = token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let response = request
        .send(partitions.to_string())
        .map_err(|error| AdminError::Unreachable(url.to_owned(), error))?;
    match response.status().as_u16() {
        200..=299 => Ok(()),
        // It exists.
        409 => Ok(()),
        status => Err(AdminError::Refused(url.to_owned(), status).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_has_its_place_under_the_admin_api() {
        assert_eq!(path("persistent://a/b/c").unwrap(), "persistent/a/b/c");
        assert_eq!(path("orders").unwrap(), "persistent/public/default/orders");
        assert!(path("non-persistent://a/b/c d/é").is_err());
        assert_eq!(path("a/b/c d").unwrap(), "persistent/a/b/c%20d");
    }
}
