//! The Java client as a program: it must agree with itself before another client is compared with it.

use anyhow::{Context, Result};
use geminga_tests::java::Java;
use geminga_tests::lab::{self, Site};

#[test]
fn java_receives_what_java_sent() -> Result<()> {
    if !lab::is_enabled("java_receives_what_java_sent") {
        return Ok(());
    }
    let site = Site::from_environment().context("GEMINGA_BROKER_URL names no broker")?;
    let java = Java::compile()?;
    let all = ["--keys", "--ordering-keys", "--properties", "--event-time", "--null-values"];
    for (compression, batch) in [("NONE", "false"), ("ZSTD", "true")] {
        let topic = format!("persistent://public/default/java-{compression}-{}", std::process::id());
        let options = [&all[..], &["--compression", compression, "--batch", batch]].concat();
        let sent = java.produce(&site.service_url, &topic, 20, &options)?;
        let mut received = java.consume(&site.service_url, &topic, "sub", 20, &[])?;
        // A batch per key may change the order among keys.
        received.sort_by_key(|message| message.sequence_id);
        let contents = |messages: &[_]| {
            messages.iter().map(geminga_tests::java::JavaMessage::content).collect::<Vec<_>>()
        };
        assert_eq!(contents(&received), contents(&sent), "{compression}, batch: {batch}");
        assert!(sent.iter().any(|message| message.null_value && message.key.is_some()));
        assert_eq!(site.admin().backlog(&topic, "sub")?, 0);
    }
    Ok(())
}

#[test]
fn java_tells_the_partition_of_any_key() -> Result<()> {
    if !lab::is_enabled("java_tells_the_partition_of_any_key") {
        return Ok(());
    }
    let site = Site::from_environment().context("GEMINGA_BROKER_URL names no broker")?;
    let topic = format!("persistent://public/default/java-keys-{}", std::process::id());
    site.admin().create_partitioned_topic(&topic, 4)?;
    let keys = ["a", "b", "", "ключ", "two\nlines", "a"];
    let found = Java::compile()?.partitions(&site.service_url, &topic, "JavaStringHash", &keys)?;
    // "a" is 97 and "b" is 98 in Java's String.hashCode.
    assert_eq!(found[..2], [1, 2]);
    assert_eq!(found[0], found[5]);
    Ok(())
}
