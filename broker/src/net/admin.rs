//! The part of Pulsar's admin REST API that tests and quickstarts need.

use std::sync::Arc;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::broker::until;
use super::hub::Hub;
use crate::{Cluster, ControlError, Now, SubscriptionView, TopicView};

/// Bytes of a request body that are read.
const LARGEST_BODY: usize = 64 * 1024;

pub(super) async fn accept(
    hub: Arc<Hub>,
    service_urls: Vec<String>,
    listener: TcpListener,
    stopped: watch::Receiver<bool>,
) {
    let service_urls: Arc<[String]> = service_urls.into();
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            continue;
        };
        let (hub, service_urls) = (hub.clone(), service_urls.clone());
        let service = service_fn(move |request| answer(hub.clone(), service_urls.clone(), request));
        let connection = async move {
            let http = hyper::server::conn::http1::Builder::new();
            if let Err(error) = http.serve_connection(TokioIo::new(socket), service).await {
                tracing::debug!(%error, "admin connection lost");
            }
        };
        tokio::spawn(until(stopped.clone(), connection));
    }
}

/// What a request comes to: a status, and a JSON value or nothing.
type Answer = (StatusCode, Option<Value>);

async fn answer(
    hub: Arc<Hub>,
    service_urls: Arc<[String]>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let (status, value) = match Limited::new(body, LARGEST_BODY).collect().await {
        Ok(body) => {
            let call = Call {
                method: head.method,
                path: head.uri.path().to_owned(),
                query: head.uri.query().unwrap_or_default().to_owned(),
                body: body.to_bytes(),
            };
            hub.with(|cluster, now| route(cluster, now, &service_urls, &call))
        }
        Err(_) => (StatusCode::PAYLOAD_TOO_LARGE, None),
    };
    let (body, content_type) = match value {
        None => (String::new(), None),
        // The health check's answer is the one plain text.
        Some(Value::String(text)) => (text, Some("text/plain")),
        Some(value) => (value.to_string(), Some("application/json")),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    if let Some(content_type) = content_type {
        let content_type = hyper::header::HeaderValue::from_static(content_type);
        response.headers_mut().insert(hyper::header::CONTENT_TYPE, content_type);
    }
    Ok(response)
}

struct Call {
    method: Method,
    path: String,
    query: String,
    body: Bytes,
}

impl Call {
    fn flag(&self, name: &str) -> bool {
        self.query
            .split('&')
            .any(|pair| pair.strip_prefix(name).is_some_and(|v| v == "=true" || v.is_empty()))
    }

    fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

fn route(cluster: &mut Cluster, now: Now, service_urls: &[String], call: &Call) -> Answer {
    let decoded: Option<Vec<String>> = call.path.trim_matches('/').split('/').map(percent_decode).collect();
    let Some(parts) = decoded else { return reason(StatusCode::BAD_REQUEST, "The path is not UTF-8") };
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let method = call.method.as_str();
    match (method, &parts[..]) {
        ("GET", ["lookup", "v2", "topic", domain, tenant, namespace, topic @ ..]) => {
            lookup(cluster, service_urls, &name(domain, tenant, namespace, topic))
        }
        ("GET", ["admin", "v2", "clusters"]) => ok(json!(["standalone"])),
        ("GET", ["admin", "v2", "clusters", _]) => ok(json!({ "brokerServiceUrl": service_urls[0] })),
        ("GET", ["admin", "v2", "brokers", "health"]) => (StatusCode::OK, Some(json!("ok"))),
        ("GET", ["admin", "v2", "tenants"]) => ok(json!(cluster.tenants())),
        ("PUT", ["admin", "v2", "tenants", tenant]) => done(cluster.create_tenant(tenant)),
        (_, ["admin", "v2", "namespaces", tenant, rest @ ..]) => namespaces(cluster, now, call, tenant, rest),
        (_, ["admin", "v2", domain @ ("persistent" | "non-persistent"), tenant, namespace, rest @ ..]) => {
            topics(cluster, now, call, domain, &format!("{tenant}/{namespace}"), rest)
        }
        _ => (StatusCode::NOT_FOUND, None),
    }
}

fn namespaces(cluster: &mut Cluster, now: Now, call: &Call, tenant: &str, rest: &[&str]) -> Answer {
    let under = |n: &String| n.split('/').next() == Some(tenant);
    match (call.method.as_str(), rest) {
        ("GET", []) => ok(json!(cluster.namespaces().into_iter().filter(under).collect::<Vec<_>>())),
        ("GET", [namespace]) => {
            let name = format!("{tenant}/{namespace}");
            match cluster.namespaces().contains(&name) {
                true => ok(json!({})),
                false => reason(StatusCode::NOT_FOUND, "Namespace does not exist"),
            }
        }
        ("PUT", [namespace]) => done(cluster.create_namespace(&format!("{tenant}/{namespace}"))),
        ("PUT", [namespace, "unload"]) => {
            done(cluster.unload_namespace(now, &format!("{tenant}/{namespace}")))
        }
        ("POST", [namespace, "deduplication"]) => {
            let on = call.json().and_then(|v| v.as_bool());
            done(cluster.set_deduplication(&format!("{tenant}/{namespace}"), on))
        }
        ("DELETE", [namespace, "deduplication"]) => {
            done(cluster.set_deduplication(&format!("{tenant}/{namespace}"), None))
        }
        ("GET", [namespace, "deduplication"]) => {
            match cluster.deduplication(&format!("{tenant}/{namespace}")) {
                Ok(Some(on)) => ok(json!(on)),
                Ok(None) => (StatusCode::NO_CONTENT, None),
                Err(error) => failed(&error),
            }
        }
        ("GET", [namespace, "topics"]) => {
            let prefix = format!("://{tenant}/{namespace}/");
            let mode =
                |name: &String| match call.query.split("mode=").nth(1).and_then(|m| m.split('&').next()) {
                    Some("NON_PERSISTENT") => name.starts_with("non-"),
                    Some("ALL") => true,
                    _ => name.starts_with("persistent"),
                };
            let fits = |name: &String| name.contains(&prefix) && mode(name);
            ok(json!(cluster.topics().into_iter().filter(fits).collect::<Vec<_>>()))
        }
        _ => (StatusCode::NOT_FOUND, None),
    }
}

fn topics(
    cluster: &mut Cluster,
    now: Now,
    call: &Call,
    domain: &str,
    namespace: &str,
    rest: &[&str],
) -> Answer {
    let full = |topic: &str| format!("{domain}://{namespace}/{topic}");
    let number = || call.json().and_then(|v| v.as_u64()).and_then(|n| u32::try_from(n).ok());
    match (call.method.as_str(), rest) {
        ("GET", []) => {
            let prefix = full("");
            let fits = |name: &String| name.starts_with(&prefix);
            ok(json!(cluster.topics().into_iter().filter(fits).collect::<Vec<_>>()))
        }
        ("GET", ["partitioned"]) => {
            let prefix = full("");
            let fits = |name: &String| name.starts_with(&prefix);
            ok(json!(cluster.partitioned_topics().into_iter().filter(fits).collect::<Vec<_>>()))
        }
        ("PUT", [topic]) => done(cluster.create_topic(now, &full(topic))),
        ("DELETE", [topic] | [topic, "partitions"]) => {
            done(cluster.delete_topic(now, &full(topic), call.flag("force")))
        }
        ("PUT", [topic, "partitions"]) => match number() {
            Some(n) => done(cluster.create_partitioned_topic(now, &full(topic), n)),
            None => reason(StatusCode::BAD_REQUEST, "The body must be a number of partitions"),
        },
        ("POST", [topic, "partitions"]) => match number() {
            Some(n) => done(cluster.grow_partitioned_topic(now, &full(topic), n)),
            None => reason(StatusCode::BAD_REQUEST, "The body must be a number of partitions"),
        },
        ("GET", [topic, "partitions"]) => {
            ok(json!({ "partitions": cluster.partitions(&full(topic)).unwrap_or(0), "deleted": false }))
        }
        ("PUT", [topic, "unload"]) => done(cluster.unload_topic(now, &full(topic))),
        ("POST", [topic, "terminate"]) => match cluster.terminate_topic(now, &full(topic)) {
            Ok(last) => ok(json!({ "ledgerId": last.ledger, "entryId": last.entry, "partitionIndex": -1 })),
            Err(error) => failed(&error),
        },
        ("GET", [topic, "stats"]) => match cluster.topic(&full(topic)) {
            Some(view) => ok(stats(&view)),
            None => reason(StatusCode::NOT_FOUND, "Topic not found"),
        },
        ("GET", [topic, "partitioned-stats"]) => partitioned_stats(cluster, &full(topic)),
        ("GET", [topic, "subscriptions"]) => match views(cluster, &full(topic)).first() {
            Some(view) => ok(json!(view.subscriptions.iter().map(|s| &s.name).collect::<Vec<_>>())),
            None => reason(StatusCode::NOT_FOUND, "Topic not found"),
        },
        ("PUT", [topic, "subscription", subscription]) => {
            // The body is a position; only its two ends are understood. Java's latest has ledger 2^63-1.
            let earliest = call.json().is_some_and(|v| v["ledgerId"].as_i64().is_some_and(|l| l < 0));
            done(cluster.create_subscription(now, &full(topic), subscription, earliest))
        }
        ("DELETE", [topic, "subscription", subscription]) => {
            done(cluster.delete_subscription(now, &full(topic), subscription, call.flag("force")))
        }
        ("POST", [topic, "subscription", subscription, "skip_all"]) => {
            done(cluster.skip_backlog(&full(topic), subscription))
        }
        _ => (StatusCode::NOT_FOUND, None),
    }
}

fn lookup(cluster: &mut Cluster, service_urls: &[String], topic: &str) -> Answer {
    match cluster.find_owner(topic) {
        Ok(node) => {
            let url = &service_urls[node.0 as usize];
            ok(json!({ "brokerUrl": url, "nativeUrl": url, "brokerUrlSsl": "" }))
        }
        Err(error) => failed(&error),
    }
}

fn views(cluster: &Cluster, topic: &str) -> Vec<TopicView> {
    match cluster.partitions(topic) {
        Some(0) => cluster.topic(topic).into_iter().collect(),
        Some(n) => (0..n).filter_map(|i| cluster.topic(&format!("{topic}-partition-{i}"))).collect(),
        None => Vec::new(),
    }
}

fn partitioned_stats(cluster: &Cluster, topic: &str) -> Answer {
    let partitions = cluster.partitions(topic).unwrap_or(0);
    if partitions == 0 {
        return reason(StatusCode::NOT_FOUND, "Partitioned topic not found");
    }
    let views = views(cluster, topic);
    let mut subscriptions = serde_json::Map::new();
    for subscription in views.iter().flat_map(|view| &view.subscriptions) {
        let entry = subscriptions.entry(&subscription.name).or_insert_with(|| json!({ "msgBacklog": 0 }));
        let backlog = entry["msgBacklog"].as_u64().unwrap_or(0) + subscription.backlog_entries;
        entry["msgBacklog"] = json!(backlog);
        entry["type"] = json!(kind(subscription));
    }
    ok(json!({
        "metadata": { "partitions": partitions, "deleted": false },
        "msgInCounter": views.iter().map(|v| v.messages).sum::<u64>(),
        "subscriptions": subscriptions,
        "partitions": views.iter().map(|v| (v.name.clone(), stats(v))).collect::<serde_json::Map<_, _>>(),
    }))
}

fn stats(view: &TopicView) -> Value {
    let publishers: Vec<Value> = view
        .producers
        .iter()
        .map(|p| {
            json!({
                "producerId": p.producer_id,
                "producerName": p.name,
                "accessMode": format!("{:?}", p.access_mode),
                "metadata": object(&p.properties),
            })
        })
        .collect();
    let subscriptions: serde_json::Map<String, Value> =
        view.subscriptions.iter().map(|s| (s.name.clone(), subscription_stats(s))).collect();
    json!({
        "msgInCounter": view.messages,
        "storageSize": view.bytes,
        "publishers": publishers,
        "waitingPublishers": view.waiting.len(),
        "subscriptions": subscriptions,
        "topicEpoch": view.topic_epoch,
        "ownerBroker": view.owner.map(|n| n.0),
    })
}

fn subscription_stats(view: &SubscriptionView) -> Value {
    let consumers: Vec<Value> = view
        .consumers
        .iter()
        .map(|c| {
            json!({
                "consumerName": c.name,
                "availablePermits": c.permits,
                "unackedMessages": c.unacked_messages,
                "msgOutCounter": c.sent_messages,
                "metadata": object(&c.properties),
            })
        })
        .collect();
    let active = view.consumers.iter().find(|c| c.active).map(|c| &c.name);
    json!({
        "type": kind(view),
        "msgBacklog": view.backlog_entries,
        "unackedMessages": view.unacked_messages,
        "msgDelayed": view.delayed_entries,
        "durable": view.durable,
        "activeConsumerName": active,
        "consumers": consumers,
        "subscriptionProperties": object(&view.properties),
    })
}

/// The type's name; Pulsar says `None` while nobody has connected.
fn kind(view: &SubscriptionView) -> &'static str {
    if view.consumers.is_empty() { "None" } else { view.kind.as_str_name() }
}

fn object(pairs: &[(String, String)]) -> Value {
    pairs.iter().map(|(k, v)| (k.clone(), json!(v))).collect::<serde_json::Map<_, _>>().into()
}

fn name(domain: &str, tenant: &str, namespace: &str, topic: &[&str]) -> String {
    format!("{domain}://{tenant}/{namespace}/{}", topic.join("/"))
}

fn ok(value: Value) -> Answer {
    (StatusCode::OK, Some(value))
}

fn done(result: Result<(), ControlError>) -> Answer {
    match result {
        Ok(()) => (StatusCode::NO_CONTENT, None),
        Err(error) => failed(&error),
    }
}

fn failed(error: &ControlError) -> Answer {
    let status = match error {
        ControlError::NotFound(_) => StatusCode::NOT_FOUND,
        ControlError::Exists(_) => StatusCode::CONFLICT,
        ControlError::Invalid(_) | ControlError::InUse(_) => StatusCode::PRECONDITION_FAILED,
    };
    reason(status, &error.to_string())
}

fn reason(status: StatusCode, text: &str) -> Answer {
    (status, Some(json!({ "reason": text })))
}

fn percent_decode(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(cluster: &mut Cluster, method: &str, path: &str, body: &str) -> (u16, Value) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let call = Call {
            method: Method::from_bytes(method.as_bytes()).unwrap(),
            path: path.to_owned(),
            query: query.to_owned(),
            body: Bytes::copy_from_slice(body.as_bytes()),
        };
        let (status, value) = route(cluster, Now::default(), &["pulsar://a:1".to_owned()], &call);
        (status.as_u16(), value.unwrap_or_default())
    }

    #[test]
    fn a_partitioned_topic_is_created_grown_and_described() {
        let mut cluster = Cluster::new(Default::default(), [0; 32]);
        let c = &mut cluster;
        assert_eq!(call(c, "PUT", "/admin/v2/tenants/acme", "{}").0, 204);
        assert_eq!(call(c, "PUT", "/admin/v2/tenants/acme", "{}").0, 409);
        assert_eq!(call(c, "PUT", "/admin/v2/namespaces/acme/shop", "{}").0, 204);
        assert_eq!(call(c, "PUT", "/admin/v2/persistent/acme/nowhere/t/partitions", "3").0, 404);
        assert_eq!(call(c, "PUT", "/admin/v2/persistent/acme/shop/t/partitions", "3").0, 204);
        assert_eq!(call(c, "POST", "/admin/v2/persistent/acme/shop/t/partitions", "2").0, 412);
        assert_eq!(call(c, "PUT", "/admin/v2/persistent/acme/shop/t/subscription/s", "").0, 204);
        assert_eq!(call(c, "POST", "/admin/v2/persistent/acme/shop/t/partitions", "4").0, 204);
        assert_eq!(call(c, "GET", "/admin/v2/persistent/acme/shop/t/partitions", "").1["partitions"], 4);
        let stats = call(c, "GET", "/admin/v2/persistent/acme/shop/t/partitioned-stats", "").1;
        assert_eq!(stats["subscriptions"]["s"]["msgBacklog"], 0);
        assert_eq!(stats["partitions"].as_object().unwrap().len(), 4);
        assert_eq!(call(c, "GET", "/admin/v2/persistent/acme/shop/t-partition-3/stats", "").0, 200);
        assert_eq!(call(c, "DELETE", "/admin/v2/persistent/acme/shop/t/partitions", "").0, 412);
        assert_eq!(call(c, "DELETE", "/admin/v2/persistent/acme/shop/t/partitions?force=true", "").0, 204);
        assert_eq!(call(c, "GET", "/admin/v2/persistent/acme/shop/t-partition-3/stats", "").0, 404);
    }

    #[test]
    fn deduplication_is_a_setting_of_the_namespace() {
        let mut cluster = Cluster::new(Default::default(), [0; 32]);
        let path = "/admin/v2/namespaces/public/default/deduplication";
        assert_eq!(call(&mut cluster, "GET", path, "").0, 204);
        assert_eq!(call(&mut cluster, "POST", path, "true").0, 204);
        assert_eq!(call(&mut cluster, "GET", path, ""), (200, json!(true)));
    }

    #[test]
    fn escaped_paths_are_unescaped_and_broken_ones_refused() {
        assert_eq!(percent_decode("a%2Fb%C3%A9"), Some("a/bé".to_owned()));
        assert_eq!(percent_decode("a%2"), None);
        assert_eq!(percent_decode("%ff"), None);
    }
}
