//! Messages that are given back again and again: the broker counts, the client gives up.

use super::{Place, eventually, next, nothing_more, take, text};
use anyhow::Result;
use geminga::{
    Batching, Client, ConsumerBuilder, DeadLetterPolicy, InitialPosition, OutgoingMessage, StateChange,
    SubscriptionType,
};
use std::time::Duration;

/// On Shared and Key_Shared, from a topic with and one without partitions: delivered as often as was said, and then in the
/// dead letter topic with all that went with it, kept there for a subscription that nobody has used yet.
pub async fn what_is_given_back_too_often_ends_in_the_dead_letter_topic(place: &Place) -> Result<()> {
    let client = place.client()?;
    for (kind, partitions) in [(SubscriptionType::Shared, 0), (SubscriptionType::KeyShared, 3)] {
        let topic = place.topic(&format!("{kind:?}"));
        if partitions > 0 {
            let topic = topic.clone();
            place.admin(move |admin| admin.create_partitioned_topic(&topic, partitions)).await?;
        }
        let consumer = consumer(&client, &topic, 2).subscription_type(kind).subscribe().await?;
        let mut changes = consumer.events();
        let poison = OutgoingMessage::new("poison")
            .with_key_bytes([0, 255, 128])
            .with_ordering_key(vec![7, 0])
            .with_property("b", "2")
            .with_property("имя", "значение")
            .with_event_time(1_700_000_000_123);
        let producer = client.producer(&topic).batching(Batching::off()).create().await?;
        producer.send(OutgoingMessage::new("good").with_key("other")).await?;
        producer.send(poison).await?;
        let (mut counts, mut origin) = (Vec::new(), None);
        while counts.len() < 3 {
            let message = next(&consumer).await?;
            match text(&message).as_str() {
                "good" => consumer.acknowledge(&message)?,
                _ => {
                    counts.push(message.redelivery_count());
                    origin = Some((message.topic().to_owned(), message.message_id()));
                    consumer.negative_acknowledge(&message)?;
                }
            }
        }
        assert_eq!(counts, [0, 1, 2]);
        let (part, id) = origin.expect("it came");
        let dead = client.consumer(format!("{topic}-s-DLQ"), "keep").subscribe().await?;
        let letter = next(&dead).await?;
        assert_eq!(text(&letter), "poison");
        assert_eq!(letter.key_bytes(), Some(vec![0, 255, 128]));
        assert!(letter.has_base64_key());
        assert_eq!(letter.ordering_key(), Some(&[7, 0][..]));
        assert_eq!(letter.event_time(), Some(1_700_000_000_123));
        let (id_text, part_text) = (id.to_string(), part.as_str());
        let properties =
            [("b", "2"), ("имя", "значение"), ("REAL_TOPIC", part_text), ("ORIGIN_MESSAGE_ID", &id_text)];
        assert_eq!(letter.properties(), properties.map(|(name, value)| (name.to_owned(), value.to_owned())));
        nothing_more(&dead).await?;
        nothing_more(&consumer).await?;
        loop {
            let change = changes.next().await.expect("the client lives").change;
            if let StateChange::DeadLettered { topic, id: of, dead_letter } = change {
                assert_eq!((topic, of, dead_letter.entry()), (part.clone(), id, letter.message_id().entry()));
                break;
            }
        }
        consumer.close().await?;
        no_backlog(place, &part).await?;
    }
    Ok(())
}

/// Members of a batch one by one, whether or not the broker is told of indexes.
pub async fn of_a_batch_only_what_is_given_back_becomes_dead_letters(place: &Place) -> Result<()> {
    let client = place.client()?;
    for index_acks in [true, false] {
        let topic = place.topic(&index_acks.to_string());
        let consumer = consumer(&client, &topic, 1).batch_index_ack(index_acks).subscribe().await?;
        let batching = Batching { max_publish_delay: Duration::from_secs(10), ..Batching::default() };
        let producer = client.producer(&topic).batching(batching).create().await?;
        for n in 0..4 {
            drop(producer.enqueue(n.to_string()).await?);
        }
        producer.flush().await?;
        for message in take(&consumer, 4).await? {
            consumer.negative_acknowledge(&message)?;
        }
        for message in take(&consumer, 4).await? {
            assert_eq!(message.redelivery_count(), 1);
            match text(&message).as_str() {
                "1" | "3" => consumer.negative_acknowledge(&message)?,
                _ => consumer.acknowledge(&message)?,
            }
        }
        let dead = client.consumer(format!("{topic}-s-DLQ"), "keep").subscribe().await?;
        let mut letters = [text(&next(&dead).await?), text(&next(&dead).await?)];
        letters.sort();
        assert_eq!(letters, ["1", "3"], "index acks: {index_acks}");
        nothing_more(&dead).await?;
        nothing_more(&consumer).await?;
        consumer.close().await?;
        no_backlog(place, &topic).await?;
    }
    Ok(())
}

/// A consumer without the policy spoiled it: the next one with a policy does not get to see the message.
pub async fn what_came_too_often_already_goes_there_undelivered(place: &Place) -> Result<()> {
    let (client, topic) = (place.client()?, place.topic("t"));
    let subscribe = || {
        let consumer = client.consumer(&topic, "s").subscription_type(SubscriptionType::Shared);
        consumer.negative_ack_redelivery_delay(Duration::from_millis(50)).subscribe()
    };
    let without = subscribe().await?;
    client.producer(&topic).create().await?.send("poison").await?;
    for count in 0..3 {
        let message = next(&without).await?;
        assert_eq!(message.redelivery_count(), count);
        if count < 2 {
            without.negative_acknowledge(&message)?;
        }
    }
    // The count lives as long as the subscription has a consumer.
    let with = consumer(&client, &topic, 1).subscribe().await?;
    without.close().await?;
    let dead = client.consumer(format!("{topic}-s-DLQ"), "keep").initial_position(InitialPosition::Earliest);
    assert_eq!(text(&next(&dead.subscribe().await?).await?), "poison");
    nothing_more(&with).await?;
    with.close().await?;
    no_backlog(place, &topic).await
}

fn consumer(client: &Client, topic: &str, max: u32) -> ConsumerBuilder {
    let policy = DeadLetterPolicy { initial_subscription: Some("keep".into()), ..DeadLetterPolicy::new(max) };
    client
        .consumer(topic, "s")
        .subscription_type(SubscriptionType::Shared)
        .initial_position(InitialPosition::Earliest)
        .negative_ack_redelivery_delay(Duration::from_millis(50))
        .dead_letter_policy(policy)
}

async fn no_backlog(place: &Place, topic: &str) -> Result<()> {
    eventually("everything is acknowledged", async || {
        let topic = topic.to_owned();
        Ok(place.admin(move |admin| admin.backlog(&topic, "s")).await? == 0)
    })
    .await
}
