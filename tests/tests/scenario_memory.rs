//! Scenarios of memory: what is kept, what is given back, and what bounds it.

use std::time::Duration;

use geminga_core::{
    ClientStats, Compression, ConsumerConfig, ErrorKind, Event, HandleId, OutgoingMessage, Position,
    ReaderConfig,
};
use geminga_tests::world::script::partitions;
use geminga_tests::world::{Sent, World};

const SECOND: Duration = Duration::from_secs(1);

/// Producers, consumers and readers come and go, with and without a reconnection in their lives: nothing stays.
#[test]
fn pb175_closed_handles_leave_nothing_behind() {
    let mut w = World::configured(175, |s| s.trace = 0);
    let mut flat: Option<(ClientStats, usize)> = None;
    for round in 0..700 {
        let producer = w.producer("t", |_| {});
        let now = w.now();
        let consumer = w.machine(0).subscribe(now, ConsumerConfig::new("t", "s")).unwrap();
        let reader = w.machine(0).create_reader(now, ReaderConfig::new("t", Position::Latest)).unwrap();
        w.await_open(0, HandleId::Consumer(consumer)).unwrap();
        w.await_open(0, HandleId::Consumer(reader)).unwrap();
        let sent = w.send(producer, "m");
        match round % 7 {
            0 => w.cut_links(),
            1 => w.broker.unload_topic(now, "t").unwrap(),
            // The close follows at once, with a message under way.
            2 => {}
            _ => w.expect_all_published([sent]),
        }
        let now = w.now();
        w.machine(0).producer(producer.id).unwrap().close(now);
        w.machine(0).consumer(consumer).unwrap().close(now);
        w.machine(0).consumer(reader).unwrap().close(now);
        for handle in
            [HandleId::Producer(producer.id), HandleId::Consumer(consumer), HandleId::Consumer(reader)]
        {
            w.await_closed(0, handle);
        }
        // Requests that nobody waits for any more end with their answers.
        w.advance(31 * SECOND);
        let (stats, links) = (w.stats(0), w.links().len());
        assert_eq!((stats.producers, stats.consumers, stats.pending_messages), (0, 0, 0));
        assert_eq!((stats.requests, stats.lookups, stats.memory_used), (0, 0, 0), "round {round}");
        assert!(stats.connections <= 1 && links <= 1, "{stats:?} and {links} links");
        // One connection, and the deadline of its silence.
        let flat = flat.get_or_insert((stats, links));
        assert!(stats.timers <= flat.0.timers.max(1), "{stats:?} after {:?}", flat.0);
    }
    w.close_client(0);
}

/// A client closes while everything is under way: the machine is silent afterwards, for ever.
#[test]
fn pb176_a_closed_client_has_no_deadline_and_no_link() {
    for seed in 0..50 {
        let mut w = World::new(seed);
        let now = w.now();
        w.broker.create_partitioned_topic(now, "parted", 3).unwrap();
        let producer = w.producer("parted", |c| c.batching.max_publish_delay = SECOND);
        let consumer = w.machine(0).subscribe(now, ConsumerConfig::new("parted", "s")).unwrap();
        w.await_open(0, HandleId::Consumer(consumer)).unwrap();
        let half_open = w.create_producer(0, "other", |_| {});
        let sent: Vec<Sent> = (0..20).map(|n| w.send(producer, format!("{n}"))).collect();
        let pause = Duration::from_micros(w.rng.u64(0..5000));
        w.advance(pause);
        if seed % 3 == 0 {
            w.cut_links();
        }
        let now = w.now();
        w.machine(0).producer(half_open.id).unwrap().close(now);
        w.close_client(0);
        for s in sent {
            let outcome = w.await_outcome(s);
            assert!(outcome.is_ok() || outcome.unwrap_err().kind() == ErrorKind::AlreadyClosed);
        }
        w.advance(60 * SECOND);
        assert_eq!(w.machine(0).deadline(), None);
        assert_eq!(w.links().len(), 0, "seed {seed}");
    }
}

/// What counts is what the application gave, not what compression or a batch makes of it.
#[test]
fn pb179_the_same_size_is_reserved_and_given_back() {
    for (compression, batching) in
        [(Compression::None, true), (Compression::Zstd, true), (Compression::Zstd, false)]
    {
        let mut w = World::configured(179, |s| {
            s.scripted = true;
            s.client.memory_limit = 4 << 20;
        });
        w.script.by_hand(&["SEND"]);
        let producer = w.producer("t", |c| {
            c.compression = compression;
            c.batching.enabled = batching;
            c.send_timeout = None;
        });
        let message =
            || OutgoingMessage::new(vec![b'x'; 1 << 20]).with_key("key").with_property("name", "value");
        let size = (1 << 20) + 3 + 9;
        let mut sent = Vec::new();
        let refused = loop {
            match w.try_send(producer, message()) {
                Ok(s) => sent.push(s),
                Err(refused) => break refused,
            }
            assert_eq!(w.stats(0).memory_used, sent.len() * size);
        };
        assert_eq!(refused.error.kind(), ErrorKind::MemoryBufferIsFull);
        assert_eq!(sent.len(), 4, "one may begin below the limit and end above it");
        let (mut left, mut n) = (sent.len(), 0);
        while left > 0 {
            let heard = w.hear("SEND");
            left -= heard.as_send().num_messages() as usize;
            n += 1;
            w.say(heard.link, heard.receipt(n));
            w.advance(Duration::from_millis(10));
            assert_eq!(w.stats(0).memory_used, left * size);
        }
        w.expect_all_published(sent);
    }
}

/// Three producers share the budget; each that was refused hears once that there is room.
#[test]
fn room_in_memory_is_told_once_to_each_producer_that_was_refused() {
    let mut w = World::configured(1, |s| {
        s.scripted = true;
        s.client.memory_limit = 1000;
    });
    w.script.by_hand(&["SEND"]);
    let producers = ["a", "b", "c"].map(|t| w.producer(t, |c| c.batching.enabled = false));
    w.send(producers[0], vec![0; 600]);
    w.send(producers[0], vec![0; 600]);
    for _ in 0..5 {
        for producer in &producers[1..] {
            assert_eq!(w.try_send(*producer, "x").unwrap_err().error.kind(), ErrorKind::MemoryBufferIsFull);
        }
    }
    let writable = |w: &World| {
        producers.map(|p| {
            w.events().iter().filter(|o| matches!(o.event, Event::Writable(id) if id == p.id)).count()
        })
    };
    assert_eq!(writable(&w), [0, 0, 0]);
    let heard = [w.hear("SEND"), w.hear("SEND")];
    heard.iter().for_each(|h| w.say(h.link, h.receipt(0)));
    w.advance(SECOND);
    assert_eq!(writable(&w), [0, 1, 1], "not to the one that was not refused");
    w.send(producers[1], "x");
    w.send(producers[2], "x");
}

/// A consumer of 200 partitions that does not read: what is sent ahead is bounded in total.
#[test]
fn pb180_prefetch_over_many_partitions_is_bounded_in_total() {
    for (total, each) in [(50_000, 250), (1000, 5), (100, 1)] {
        let mut w = World::scripted(180);
        w.script.by_hand(&["PARTITIONED_METADATA"]);
        let now = w.now();
        let mut config = ConsumerConfig::new("t", "s");
        config.max_total_receiver_queue_size = total;
        let consumer = w.machine(0).subscribe(now, config).unwrap();
        let asked = w.hear("PARTITIONED_METADATA");
        w.say(asked.link, partitions(asked.request_id(), 200));
        w.await_open(0, HandleId::Consumer(consumer)).unwrap();
        w.advance(10 * SECOND);
        let flows: Vec<u32> = w
            .script
            .log()
            .iter()
            .filter(|h| h.command.name() == "FLOW")
            .map(|h| h.as_flow().message_permits)
            .collect();
        assert_eq!(flows, vec![each; 200], "of {total} in total");
    }
}

/// Many batches through the codecs from several threads: the process does not grow.
#[test]
#[cfg(target_os = "linux")]
fn pb181_codecs_keep_no_memory_of_past_batches() {
    let work = || {
        let threads: Vec<_> = (0..4)
            .map(|n| {
                std::thread::spawn(move || {
                    let data: Vec<u8> = (0..2000u32).map(|i| (i / 7 + n) as u8).collect();
                    for codec in [Compression::Zstd, Compression::Zlib, Compression::Lz4, Compression::Snappy]
                    {
                        for _ in 0..100 {
                            let packed = codec.compress(&data).unwrap();
                            let plain = geminga_core::compression::decompress(
                                codec,
                                &packed,
                                data.len() as u32,
                                1 << 20,
                            )
                            .unwrap();
                            assert_eq!(plain, data);
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
    };
    let resident = || -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    work();
    let warm = resident();
    for _ in 0..3 {
        work();
    }
    let grown = resident().saturating_sub(warm);
    // 1,200 round trips for each codec: one leaked context of any codec would be hundreds of MiB. Other tests run beside this one.
    assert!(grown < 128 << 20, "{} MiB more", grown >> 20);
}
