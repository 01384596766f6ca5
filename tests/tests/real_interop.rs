//! Messages between Pulsar's Java client and this one, over a real broker.

use anyhow::{Context, Result};
use geminga::{
    Batching, Client, Compression, HashingScheme, InitialPosition, Message, OutgoingMessage, Producer,
};
use geminga_tests::java::{Java, JavaMessage, JavaMessageId};
use geminga_tests::lab::{self, Site};
use std::time::Duration;

const CODECS: [(Compression, &str); 5] = [
    (Compression::None, "NONE"),
    (Compression::Lz4, "LZ4"),
    (Compression::Zlib, "ZLIB"),
    (Compression::Zstd, "ZSTD"),
    (Compression::Snappy, "SNAPPY"),
];
const COUNT: usize = 30;
/// Large enough that a codec has something to do.
const SIZE: usize = 500;

#[tokio::test(flavor = "multi_thread")]
async fn ours_receives_what_java_sent() -> Result<()> {
    let Some((site, java)) = start("ours_receives_what_java_sent").await? else { return Ok(()) };
    let client = Client::new(&site.service_url)?;
    let (cases, size) = (cases("from-java"), SIZE.to_string());
    let options: Vec<Vec<&str>> = cases
        .iter()
        .map(|case| {
            // Text keys in one half, binary keys in the other.
            let (batch, keys) = if case.batched { ("true", "--keys") } else { ("false", "--key-bytes") };
            let coding = ["--compression", case.codec_name, "--batch", batch, "--size", &size];
            let content = [keys, "--ordering-keys", "--properties", "--event-time", "--null-values"];
            [&coding[..], &content].concat()
        })
        .collect();
    let topics: Vec<(&str, &[&str])> =
        cases.iter().zip(&options).map(|(case, options)| (case.topic.as_str(), &options[..])).collect();
    let all = java.produce_each(&site.service_url, COUNT, &topics)?;
    for (Case { topic, .. }, sent) in cases.iter().zip(all) {
        let consumer = client.consumer(topic, "ours").initial_position(InitialPosition::Earliest);
        let consumer = consumer.subscribe().await?;
        let mut received = Vec::new();
        for _ in 0..COUNT {
            let message = consumer.receive_timeout(Duration::from_secs(20)).await?;
            let message = message.with_context(|| format!("nothing more on {topic}"))?;
            received.push(as_java_tells(&message).content());
            consumer.acknowledge(&message)?;
        }
        // Java's batches by key change the order among keys.
        received.sort_by_key(|message| message.sequence_id);
        let sent: Vec<_> = sent.iter().map(JavaMessage::content).collect();
        assert_eq!(received, sent, "{topic}");
        consumer.close().await?;
        assert_eq!(site.admin().backlog(topic, "ours")?, 0, "{topic}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn java_receives_what_ours_sent() -> Result<()> {
    let Some((site, java)) = start("java_receives_what_ours_sent").await? else { return Ok(()) };
    let client = Client::new(&site.service_url)?;
    let cases = cases("to-java");
    let mut all = Vec::new();
    for case in &cases {
        let batching = match case.batched {
            true => Batching { max_publish_delay: Duration::from_secs(10), ..Batching::default() },
            false => Batching::off(),
        };
        let producer =
            client.producer(&case.topic).compression(case.codec).batching(batching).create().await?;
        all.push(send(&producer, case.batched).await?);
    }
    // A subscription of Java's starts with the earliest message.
    let topics: Vec<&str> = cases.iter().map(|case| case.topic.as_str()).collect();
    let received = java.consume_each(&site.service_url, "java", COUNT, &topics)?;
    for ((Case { topic, batched, .. }, sent), received) in cases.iter().zip(all).zip(received) {
        let received: Vec<_> = received.iter().map(JavaMessage::content).collect();
        assert_eq!(received, sent, "{topic}");
        let in_batches = received.iter().all(|message| message.message_id.batch_index >= 0);
        assert_eq!(in_batches, *batched, "{topic}");
        assert_eq!(site.admin().backlog(topic, "java")?, 0, "{topic}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_goes_where_java_sends_it() -> Result<()> {
    const PARTITIONS: u32 = 16;
    let Some((site, java)) = start("a_key_goes_where_java_sends_it").await? else { return Ok(()) };
    let client = Client::new(&site.service_url)?;
    let keys = thousand_keys();
    for (scheme, name) in
        [(HashingScheme::JavaStringHash, "JavaStringHash"), (HashingScheme::Murmur3_32Hash, "Murmur3_32Hash")]
    {
        let topic = topic(&format!("keys-{name}"));
        site.admin().create_partitioned_topic(&topic, PARTITIONS)?;
        let java = java.partitions(&site.service_url, &topic, name, &keys)?;
        let producer = client.producer(&topic).hashing_scheme(scheme).create().await?;
        let mut receipts = Vec::new();
        for key in &keys {
            receipts.push(producer.enqueue(OutgoingMessage::new("").with_key(key)).await?);
        }
        producer.flush().await?;
        let mut used = [0; PARTITIONS as usize];
        for ((key, receipt), java) in keys.iter().zip(receipts).zip(java) {
            assert_eq!(receipt.await?.partition, java, "{name} of {key:?}");
            used[java as usize] += 1;
        }
        assert!(used.iter().all(|&keys| keys > 0), "the keys reach every partition: {used:?}");
    }
    Ok(())
}

/// One way of writing messages.
struct Case {
    topic: String,
    codec: Compression,
    codec_name: &'static str,
    batched: bool,
}

/// Each codec, batched and not.
fn cases(name: &str) -> Vec<Case> {
    let case = |(codec, codec_name), batched| {
        let topic = topic(&format!("{name}-{codec_name}-{}", if batched { "batched" } else { "single" }));
        Case { topic, codec, codec_name, batched }
    };
    CODECS.into_iter().flat_map(|codec| [case(codec, true), case(codec, false)]).collect()
}

/// Digits, Latin with accents, Cyrillic, Chinese, symbols outside the basic plane, control characters, and none at all.
fn thousand_keys() -> Vec<String> {
    let stems =
        ["key-", "clé-", "ключ-", "鍵", "🦀🔑", "a\tb\n", "e\u{301}", "\u{7f}\u{80}\u{ffff}\u{10000}"];
    let mut keys = vec![String::new(), " ".to_owned(), "polygenelubricants".to_owned()]; // the last hashes to i32::MIN
    keys.extend((0..).map(|i: usize| format!("{}{i}", stems[i % stems.len()])).take(1000 - keys.len()));
    keys
}

/// What the Java program sends, from our side. Returns what it should look like over there.
async fn send(producer: &Producer, batched: bool) -> Result<Vec<JavaMessage>> {
    let mut receipts = Vec::new();
    let mut sent = Vec::new();
    for i in 0..COUNT {
        let null = i % 5 == 4;
        let payload = match i % 5 {
            4 | 3 => String::new(),
            _ => format!("message {i} ☂ ").repeat(SIZE / 14),
        };
        let key = if batched { format!("clé-{}", i % 7).into_bytes() } else { vec![0, 255, i as u8] };
        let mut message = OutgoingMessage {
            payload: payload.clone().into(),
            null_value: null,
            ..OutgoingMessage::default()
        };
        message = match batched {
            true => message.with_key(format!("clé-{}", i % 7)),
            false => message.with_key_bytes(&key),
        };
        let ordering_key = vec![i as u8, 0, 200];
        let properties =
            [("number", i.to_string()), ("название", format!("значение {i}")), ("empty", "".into())];
        message =
            message.with_ordering_key(ordering_key.clone()).with_event_time(1_700_000_000_000 + i as u64);
        for (name, value) in &properties {
            message = message.with_property(*name, value);
        }
        receipts.push(producer.enqueue(message).await?);
        sent.push(JavaMessage {
            payload: hex(payload.as_bytes()),
            null_value: null,
            key: Some(hex(&key)),
            key_is_bytes: !batched,
            ordering_key: Some(hex(&ordering_key)),
            properties: properties.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            event_time: 1_700_000_000_000 + i as u64,
            sequence_id: i as i64,
            publish_time: None,
            redelivery_count: 0,
            producer_name: producer.name().context("it is open")?,
            topic: None,
            message_id: JavaMessageId {
                ledger_id: 0,
                entry_id: 0,
                partition: 0,
                batch_index: 0,
                batch_size: 0,
            },
        });
    }
    producer.flush().await?;
    for (sent, receipt) in sent.iter_mut().zip(receipts) {
        sent.message_id = java_id(receipt.await?);
    }
    Ok(sent.iter().map(JavaMessage::content).collect())
}

/// A message of ours in the words of the Java program.
fn as_java_tells(message: &Message) -> JavaMessage {
    JavaMessage {
        payload: hex(message.payload()),
        null_value: message.is_null(),
        key: message.key_bytes().map(|key| hex(&key)),
        key_is_bytes: message.has_base64_key(),
        ordering_key: message.ordering_key().map(hex),
        properties: message.properties().into_iter().collect(),
        event_time: message.event_time().unwrap_or(0),
        sequence_id: message.sequence_id() as i64,
        publish_time: Some(message.publish_time()),
        redelivery_count: message.redelivery_count(),
        producer_name: message.producer_name().to_owned(),
        topic: Some(message.topic().to_owned()),
        message_id: java_id(message.message_id()),
    }
}

fn java_id(id: geminga::MessageId) -> JavaMessageId {
    JavaMessageId {
        ledger_id: id.ledger_id,
        entry_id: id.entry_id,
        partition: id.partition,
        batch_index: id.batch_index,
        batch_size: id.batch_size,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn topic(name: &str) -> String {
    format!("persistent://public/default/interop-{name}-{}", std::process::id())
}

async fn start(test: &str) -> Result<Option<(Site, Java)>> {
    if !lab::is_enabled(test) {
        return Ok(None);
    }
    let site = Site::from_environment().context("GEMINGA_BROKER_URL names no broker")?;
    Ok(Some((site, Java::compile()?)))
}
