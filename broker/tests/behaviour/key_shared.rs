//! Key_Shared subscriptions: which keys go to whom, and what waits for whom.

use std::collections::{BTreeMap, BTreeSet};

use geminga_broker::LinkId;
use geminga_core::hash::sticky_slot;
use geminga_core::wire::proto::command_subscribe::SubType;
use geminga_core::wire::proto::{self, KeySharedMode, ServerError};

use crate::world::{Got, World, error_of, publish_keys, published};

fn key_shared(w: &mut World, name: &str) -> LinkId {
    let link = w.link();
    w.subscribe_with(link, 1, SubType::KeyShared, |request| request.consumer_name = Some(name.to_owned()));
    link
}

#[test]
fn a_key_stays_with_its_consumer() {
    let mut w = World::new();
    let producer = published(&mut w, &[]);
    let links = [key_shared(&mut w, "a"), key_shared(&mut w, "b"), key_shared(&mut w, "c")];
    for link in links {
        w.flow(link, 1, 1000);
    }
    publish_keys(&mut w, producer, 0, (0..60).map(|i| i % 20));
    let mut owners: BTreeMap<String, BTreeSet<LinkId>> = BTreeMap::new();
    for link in links {
        for text in w.texts(link) {
            owners.entry(text).or_default().insert(link);
        }
    }
    assert_eq!(owners.len(), 20);
    assert!(owners.values().all(|links| links.len() == 1));
}

#[test]
fn a_key_waits_until_its_former_consumer_has_acknowledged() {
    let mut w = World::new();
    let producer = published(&mut w, &[]);
    let old = key_shared(&mut w, "old");
    w.flow(old, 1, 1000);
    publish_keys(&mut w, producer, 0, 0..40);
    let held = w.messages(old);
    assert_eq!(held.len(), 40);
    let new = key_shared(&mut w, "new");
    w.flow(new, 1, 1000);
    publish_keys(&mut w, producer, 40, 0..40);
    assert!(w.messages(new).is_empty(), "all keys are held by the old consumer");
    let stayed = w.texts(old);
    assert!(!stayed.is_empty() && stayed.len() < 40);
    let moved: Vec<&Got> = held.iter().filter(|m| !stayed.contains(&m.texts[0])).collect();
    w.ack(old, 1, moved[0].id);
    assert_eq!(w.texts(new), moved[0].texts, "one key is free, and only that");
    w.drop_link(old);
    let rest = w.messages(new);
    let mut seen: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for message in &rest {
        let last = seen.insert(&message.texts[0], message.id);
        assert!(last.is_none_or(|last| last < message.id), "a key went backwards");
    }
    assert_eq!(rest.len(), 39 + 39);
}

#[test]
fn a_consumer_without_permits_does_not_stop_the_keys_of_others() {
    let mut w = World::new();
    let producer = published(&mut w, &[]);
    let (slow, fast) = (key_shared(&mut w, "slow"), key_shared(&mut w, "fast"));
    w.flow(slow, 1, 1);
    w.flow(fast, 1, 1000);
    publish_keys(&mut w, producer, 0, 0..40);
    let (first, others) = (w.texts(slow), w.texts(fast));
    assert_eq!(first.len(), 1);
    assert!(others.len() > 5);
    w.flow(slow, 1, 1000);
    assert_eq!(first.len() + others.len() + w.texts(slow).len(), 40);
}

#[test]
fn look_ahead_past_blocked_keys_is_limited() {
    let mut w = World::with(|config| config.look_ahead = 5);
    let producer = published(&mut w, &[]);
    let (slow, fast) = (key_shared(&mut w, "slow"), key_shared(&mut w, "fast"));
    w.flow(fast, 1, 1000);
    publish_keys(&mut w, producer, 0, 0..200);
    let got = w.texts(fast).len();
    assert!(got < 60, "read on although {got} were passed");
    w.flow(slow, 1, 1000);
    assert_eq!(got + w.texts(fast).len() + w.texts(slow).len(), 200);
}

#[test]
fn sticky_ranges_and_the_ordering_key_decide() {
    let mut w = World::new();
    let producer = published(&mut w, &[]);
    let slot = sticky_slot(b"key-1") as i32;
    assert_eq!(slot, 5536, "as observed on the real broker");
    let sticky = |ranges: Vec<(i32, i32)>| {
        move |request: &mut proto::CommandSubscribe| {
            request.key_shared_meta = Some(proto::KeySharedMeta {
                key_shared_mode: KeySharedMode::Sticky as i32,
                hash_ranges: ranges.into_iter().map(|(start, end)| proto::IntRange { start, end }).collect(),
                allow_out_of_order_delivery: None,
            });
        }
    };
    let (one, rest) = (w.link(), w.link());
    let none = w.try_subscribe(one, 1, SubType::KeyShared, sticky(vec![]));
    assert_eq!(error_of(&none), ServerError::ConsumerAssignError);
    w.subscribe_with(one, 1, SubType::KeyShared, sticky(vec![(slot, slot)]));
    let overlapping = w.try_subscribe(rest, 1, SubType::KeyShared, sticky(vec![(0, 65535)]));
    assert_eq!(error_of(&overlapping), ServerError::ConsumerAssignError);
    assert_eq!(error_of(&w.try_subscribe(rest, 1, SubType::KeyShared, |_| {})), ServerError::ConsumerBusy);
    w.subscribe_with(rest, 1, SubType::KeyShared, sticky(vec![(0, slot - 1), (slot + 1, 65535)]));
    w.flow(one, 1, 10);
    w.flow(rest, 1, 10);
    w.publish_with(producer, 1, 0, "by key", |m| m.partition_key = Some("key-1"));
    w.publish_with(producer, 1, 1, "by ordering key", |m| {
        m.partition_key = Some("other");
        m.ordering_key = Some(b"key-1");
    });
    w.publish_with(producer, 1, 2, "elsewhere", |m| {
        m.partition_key = Some("key-1");
        m.ordering_key = Some(b"other");
    });
    w.publish_with(producer, 1, 3, "by bytes", |m| {
        m.partition_key = Some("a2V5LTE=");
        m.partition_key_b64_encoded = true;
    });
    assert_eq!(w.texts(one), ["by key", "by ordering key", "by bytes"]);
    assert_eq!(w.texts(rest), ["elsewhere"]);
}
