//! What is refused, and how that is told.

use super::{Place, next, take, text};
use anyhow::Result;
use futures::future::try_join_all;
use geminga::{Batching, Client, Compression, ErrorKind, OperationRetries, OutgoingMessage, Position};
use std::time::{Duration, Instant};

/// An error that hands the message back, or a wait for room.
pub async fn a_full_queue_fails_or_waits(place: &Place) -> Result<()> {
    let (client, topic) = (place.client()?, place.topic("t"));
    // A batch that is not full waits, so that the queue fills without depending on speed.
    let slow = Batching { max_publish_delay: Duration::from_secs(20), ..Batching::default() };
    let producer = client.producer(&topic).batching(slow).max_pending_messages(5).create().await?;
    let mut receipts = Vec::new();
    for i in 0..5 {
        receipts.push(producer.enqueue(i.to_string()).await?);
    }
    let refused = producer.enqueue("5").await.expect_err("there is room for five");
    assert_eq!(refused.error.kind(), ErrorKind::ProducerQueueIsFull);
    assert_eq!(refused.message.payload, "5");
    producer.flush().await?;
    try_join_all(receipts).await?;
    let receipt = producer.enqueue(*refused.message).await?;
    producer.flush().await?;
    receipt.await?;

    let builder = client.producer(&topic).max_pending_messages(5).block_if_queue_full(true);
    let producer = builder.create().await?;
    let reader = client.reader(&topic, Position::Latest).create().await?;
    for i in 0..200 {
        drop(producer.enqueue(i.to_string()).await?);
        assert!(producer.pending_messages() <= 5);
    }
    producer.flush().await?;
    for (i, message) in take(&reader, 200).await?.iter().enumerate() {
        assert_eq!(text(message), i.to_string());
    }
    Ok(())
}

/// The limit is for the payload with its metadata, so the largest payload is a little below it.
pub async fn the_largest_payload_passes_and_a_byte_more_is_refused(place: &Place) -> Result<()> {
    const LIMIT: usize = 5 * 1024 * 1024;
    let (client, topic) = (place.client()?, place.topic("t"));
    let reader = client.reader(&topic, Position::Earliest).create().await?;
    let producer = client.producer(&topic).batching(Batching::off()).create().await?;
    let (mut passes, mut refused) = (LIMIT - 1024, LIMIT);
    while refused - passes > 1 {
        let size = passes.midpoint(refused);
        match producer.send(vec![1; size]).await {
            Ok(_) => passes = size,
            Err(error) if error.kind() == ErrorKind::MessageTooBig => refused = size,
            Err(error) => return Err(error.into()),
        }
    }
    assert!(passes > LIMIT - 200, "{passes}");
    let payload: Vec<u8> = (0..passes).map(|i| (i % 251) as u8).collect();
    let id = producer.send(payload.clone()).await?;
    let error = producer.send(vec![1; refused]).await.err().map(|error| error.kind());
    assert_eq!(error, Some(ErrorKind::MessageTooBig));
    producer.send("after").await?;
    reader.seek(Position::Id(id)).await?;
    assert_eq!(text(&next(&reader).await?), "after");
    let inclusive = client.reader(&topic, Position::Id(id)).start_message_id_inclusive(true).create().await?;
    assert!(next(&inclusive).await?.payload()[..] == payload[..], "it arrives whole");
    Ok(())
}

/// Before it is sent, for it is the broker that would close the connection; what compresses well may pass.
pub async fn a_message_too_large_is_refused_and_spares_the_others(place: &Place) -> Result<()> {
    const LIMIT: usize = 5 * 1024 * 1024;
    let (client, topic) = (place.client()?, place.topic("t"));
    let reader = client.reader(&topic, Position::Earliest).create().await?;
    for batching in [Batching::off(), Batching::default()] {
        let producer = client.producer(&topic).batching(batching).create().await?;
        producer.send("before").await?;
        let error = producer.send(vec![0; LIMIT + 1]).await.err().map(|error| error.kind());
        assert_eq!(error, Some(ErrorKind::MessageTooBig));
        producer.send("after").await?;
        producer.send(vec![7; LIMIT - 1024]).await?;
        let packed =
            client.producer(&topic).batching(batching).compression(Compression::Lz4).create().await?;
        packed.send(vec![7; LIMIT + 1]).await?;
        let sizes: Vec<_> = take(&reader, 4).await?.iter().map(|message| message.payload().len()).collect();
        assert_eq!(sizes, [6, 5, LIMIT - 1024, LIMIT + 1]);
    }
    Ok(())
}

/// As `OperationRetries` say.
pub async fn a_producer_name_in_use_is_busy_or_waited_for(place: &Place) -> Result<()> {
    let topic = place.topic("t");
    let first = place.client()?.producer(&topic).name("only").create().await?;
    let refused = place.impatient_client()?.producer(&topic).name("only").create().await;
    assert_eq!(refused.err().map(|error| error.kind()), Some(ErrorKind::ProducerBusy));
    let retries = OperationRetries { delay: Some(Duration::from_millis(200)), ..OperationRetries::default() };
    let patient = place.builder().operation_retries(retries).build()?;
    let waiting = tokio::spawn(patient.producer(&topic).name("only").create());
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!waiting.is_finished(), "it waits");
    first.send("the first works on").await?;
    first.close().await?;
    waiting.await??.send("the second").await?;
    Ok(())
}

/// Within seconds, for producers, consumers and readers, and it names the topic.
pub async fn a_namespace_that_does_not_exist_is_a_clear_error(place: &Place) -> Result<()> {
    let client = place.client()?;
    for namespace in ["public/no-such-namespace", "no-such-tenant/default"] {
        let topic = format!("persistent://{namespace}/t");
        let began = Instant::now();
        let errors = [
            client.producer(&topic).create().await.map(drop).err(),
            client.consumer(&topic, "s").subscribe().await.map(drop).err(),
            client.reader(&topic, Position::Earliest).create().await.map(drop).err(),
        ];
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}: {errors:?}", began.elapsed());
        for error in errors {
            let error = error.expect("there is no such namespace");
            assert_eq!(error.kind(), ErrorKind::TopicNotFound, "{error}");
            assert!(error.to_string().contains(&topic), "{error}");
        }
    }
    Ok(())
}

/// When the operation timeout is over; it is worth trying again, and names topic and address.
pub async fn an_unreachable_broker_is_a_clear_error(_: &Place) -> Result<()> {
    let time = Duration::from_secs(1);
    // Nobody listens on this port, which is reserved.
    let client = Client::builder("pulsar://127.0.0.1:1")
        .operation_timeout(time)
        .operation_retries(OperationRetries::within_operation_timeout())
        .build()?;
    let topic = "persistent://public/default/nowhere";
    let began = Instant::now();
    let errors = [
        client.producer(topic).create().await.map(drop).err(),
        client.consumer(topic, "s").subscribe().await.map(drop).err(),
        client.reader(topic, Position::Earliest).create().await.map(drop).err(),
    ];
    let took = began.elapsed();
    assert!(3 * time <= took && took < 6 * time, "after {took:?}");
    for error in errors {
        let error = error.expect("nobody listens");
        assert!(error.is_retryable(), "{error}");
        let text = error.to_string();
        assert!(text.contains(topic) && text.contains("127.0.0.1:1"), "{text}");
    }
    Ok(())
}

/// `AlreadyClosed`, from every method that needs the broker; closing twice is fine.
pub async fn closed_handles_say_so(place: &Place) -> Result<()> {
    fn kind<T>(result: Result<T, geminga::Error>) -> Option<ErrorKind> {
        result.err().map(|error| error.kind())
    }
    const CLOSED: Option<ErrorKind> = Some(ErrorKind::AlreadyClosed);
    let (client, topic) = (place.client()?, place.topic("t"));
    let consumer = client.consumer(&topic, "s").subscribe().await?;
    let reader = client.reader(&topic, Position::Earliest).create().await?;
    let producer = client.producer(&topic).create().await?;
    producer.send("m").await?;
    let message = next(&consumer).await?;
    for _ in 0..2 {
        producer.close().await?;
        consumer.close().await?;
        reader.close().await?;
    }
    assert_eq!(kind(producer.send(OutgoingMessage::new("late")).await), CLOSED);
    assert_eq!(kind(producer.flush().await), CLOSED);
    assert_eq!(kind(consumer.receive().await), CLOSED);
    assert_eq!(kind(consumer.acknowledge(&message)), CLOSED);
    assert_eq!(kind(consumer.negative_acknowledge(&message)), CLOSED);
    assert_eq!(kind(consumer.seek(Position::Earliest).await), CLOSED);
    assert_eq!(kind(reader.next().await), CLOSED);
    assert_eq!(kind(reader.has_message_available().await), CLOSED);
    let open = client.producer(&topic).create().await?;
    for _ in 0..2 {
        client.close().await?;
    }
    assert_eq!(kind(open.send("late").await), CLOSED);
    assert_eq!(kind(client.producer(&topic).create().await), CLOSED);
    assert_eq!(kind(client.partitions(&topic).await), CLOSED);
    Ok(())
}
