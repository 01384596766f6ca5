//! The demo's score: what was sent, stored and received, when, by whom and in which order. Knows no client.

use std::time::{Duration, Instant};

use crate::progress::{Progress, group, per_second};
use crate::stats::{Latencies, time, time_or_dash};
use crate::table::Table;

/// What becomes of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Done,
    Failed,
}

/// The score of one run.
pub(super) struct Board {
    /// By message number.
    messages: Vec<Entry>,
    keys: Vec<Key>,
    workers: Vec<Worker>,
    poison: Poison,
    received: u64,
    repeated: u64,
    out_of_order: u64,
    started: Instant,
    stored_at: Option<Instant>,
    received_at: Option<Instant>,
    stored: u64,
    receipts: Latencies,
    deliveries: Latencies,
    progress: Option<Progress>,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    sent: Option<Instant>,
    received: bool,
}

#[derive(Clone, Default)]
struct Key {
    last: Option<u64>,
    /// By worker.
    served_by: Vec<bool>,
}

#[derive(Clone, Default)]
struct Worker {
    messages: u64,
    keys: u64,
    came_back: u64,
}

/// The message that fails once.
struct Poison {
    number: u64,
    failed: Option<(usize, Instant)>,
    back: Option<Back>,
}

struct Back {
    worker: usize,
    after: Duration,
    redelivery_count: u32,
}

impl Board {
    /// A board for `messages` messages whose keys are taken in turn from `keys`.
    pub(super) fn new(messages: u64, keys: u64, workers: usize, progress: Progress) -> Self {
        let key = Key { last: None, served_by: vec![false; workers] };
        Board {
            messages: vec![Entry::default(); messages as usize],
            keys: vec![key; keys as usize],
            workers: vec![Worker::default(); workers],
            poison: Poison { number: messages / 3, failed: None, back: None },
            received: 0,
            repeated: 0,
            out_of_order: 0,
            started: Instant::now(),
            stored_at: None,
            received_at: None,
            stored: 0,
            receipts: Latencies::with_capacity(messages as usize),
            deliveries: Latencies::with_capacity(messages as usize),
            progress: Some(progress),
        }
    }

    /// The first message is about to be sent.
    pub(super) fn start(&mut self) {
        self.started = Instant::now();
    }

    pub(super) fn sent(&mut self, number: u64, now: Instant) {
        self.messages[number as usize].sent = Some(now);
    }

    pub(super) fn stored(&mut self, number: u64, now: Instant) {
        self.stored += 1;
        self.stored_at = Some(now);
        if let Some(sent) = self.messages[number as usize].sent {
            self.receipts.push(now - sent);
        }
    }

    /// A worker has a message. Numbers that were never sent are done with.
    pub(super) fn received(
        &mut self,
        worker: usize,
        number: u64,
        redelivery_count: u32,
        now: Instant,
    ) -> Verdict {
        let Some(entry) = self.messages.get_mut(number as usize) else { return Verdict::Done };
        let first = !std::mem::replace(&mut entry.received, true);
        let sent = entry.sent;
        if first {
            self.count(worker, number, sent, now);
        } else {
            self.workers[worker].came_back += 1;
        }
        if number != self.poison.number {
            self.repeated += u64::from(!first);
            return Verdict::Done;
        }
        match self.poison.failed {
            None => {
                self.poison.failed = Some((worker, now));
                Verdict::Failed
            }
            Some((_, failed)) => {
                self.poison.back.get_or_insert(Back { worker, after: now - failed, redelivery_count });
                Verdict::Done
            }
        }
    }

    pub(super) fn received_count(&self) -> u64 {
        self.received
    }

    pub(super) fn is_complete(&self) -> bool {
        self.received == self.messages.len() as u64 && self.poison.back.is_some()
    }

    /// What is wrong, in words; empty when all went as it should.
    pub(super) fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        let missing = self.messages.len() as u64 - self.received;
        if missing > 0 {
            complaints.push(format!("{} messages were not received", group(missing)));
        }
        if self.out_of_order > 0 {
            complaints.push(format!(
                "{} messages came before an earlier one of their key",
                group(self.out_of_order)
            ));
        }
        if self.poison.back.is_none() {
            complaints.push("the poisoned message did not come back".to_owned());
        }
        complaints
    }

    /// The tables at the end. `names` are the workers'.
    pub(super) fn summary(&mut self, names: &[&str]) -> Vec<String> {
        if let Some(progress) = self.progress.take() {
            progress.finish();
        }
        let mut lines = self.rates().lines();
        lines.push(String::new());
        lines.extend(self.latencies().lines());
        lines.push(String::new());
        lines.extend(self.group(names).lines());
        lines.push(String::new());
        lines.push(format!("  order     {}", self.order()));
        lines.push(format!("  poison    {}", self.poison(names)));
        let lost = self.messages.len() as u64 - self.received;
        lines.push(format!(
            "  lost      {}, received again without being asked for: {}",
            group(lost),
            group(self.repeated)
        ));
        lines
    }

    fn count(&mut self, worker: usize, number: u64, sent: Option<Instant>, now: Instant) {
        self.received += 1;
        self.received_at = Some(now);
        if let Some(sent) = sent {
            self.deliveries.push(now - sent);
        }
        let at = (number % self.keys.len() as u64) as usize;
        let key = &mut self.keys[at];
        self.out_of_order += u64::from(key.last.is_some_and(|last| last > number));
        key.last = key.last.max(Some(number));
        let worker_state = &mut self.workers[worker];
        worker_state.messages += 1;
        worker_state.keys += u64::from(!std::mem::replace(&mut key.served_by[worker], true));
        if let Some(progress) = &mut self.progress {
            progress.add(1);
        }
    }

    fn rates(&self) -> Table {
        let mut table = Table::new(["", "messages", "time", "rate"]);
        for (name, count, end) in
            [("produced", self.stored, self.stored_at), ("consumed", self.received, self.received_at)]
        {
            let elapsed = end.map_or(Duration::ZERO, |end| end - self.started);
            let rate = group(per_second(count, elapsed) as u64);
            table.row([name.to_owned(), group(count), time(elapsed), format!("{rate}/s")]);
        }
        table
    }

    fn latencies(&mut self) -> Table {
        let mut table = Table::new(["latency", "p50", "p90", "p99", "max"]);
        for (name, latencies) in
            [("send to receipt", &mut self.receipts), ("send to receive", &mut self.deliveries)]
        {
            let at = |p| time_or_dash(latencies.percentile(p));
            let [p50, p90, p99, max] = [0.5, 0.9, 0.99, 1.0].map(at);
            table.row([name.to_owned(), p50, p90, p99, max]);
        }
        table
    }

    fn group(&self, names: &[&str]) -> Table {
        let mut table = Table::new(["consumer", "messages", "keys", "came back"]);
        for (name, worker) in names.iter().zip(&self.workers) {
            table.row([
                (*name).to_owned(),
                group(worker.messages),
                group(worker.keys),
                group(worker.came_back),
            ]);
        }
        table
    }

    fn order(&self) -> String {
        let shared = self.keys.iter().filter(|key| key.served_by.iter().filter(|s| **s).count() > 1).count();
        match (self.out_of_order, shared) {
            (0, 0) => {
                format!("exact for each of {} keys; each key stayed with one consumer", self.keys.len())
            }
            (0, n) => format!("exact for each of {} keys; {n} moved to another consumer", self.keys.len()),
            (n, _) => format!("broken {} times", group(n)),
        }
    }

    fn poison(&self, names: &[&str]) -> String {
        let (number, key) = (group(self.poison.number), self.poison.number % self.keys.len() as u64);
        let message = format!("message {number} of key-{key}");
        match (&self.poison.failed, &self.poison.back) {
            (Some((worker, _)), Some(back)) => format!(
                "{message} failed in {}, came back to {} after {}\n            (redelivery count {}), then acknowledged",
                names[*worker],
                names[back.worker],
                time(back.after),
                back.redelivery_count
            ),
            (Some((worker, _)), None) => {
                format!("{message} failed in {} and did not come back", names[*worker])
            }
            (None, _) => format!("{message} was never received"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board() -> Board {
        let mut board = Board::new(6, 2, 2, Progress::new("", None, true));
        for number in 0..6 {
            board.sent(number, Instant::now());
            board.stored(number, Instant::now());
        }
        board
    }

    fn receive(board: &mut Board, worker: usize, numbers: &[u64]) -> Vec<Verdict> {
        numbers.iter().map(|n| board.received(worker, *n, 0, Instant::now())).collect()
    }

    #[test]
    fn the_poisoned_message_fails_once_and_completes_the_run_when_it_is_back() {
        let mut board = board();
        assert_eq!(receive(&mut board, 0, &[0, 2, 4]), [Verdict::Done, Verdict::Failed, Verdict::Done]);
        receive(&mut board, 1, &[1, 3, 5]);
        assert!(!board.is_complete());
        assert_eq!(board.complaints(), ["the poisoned message did not come back"]);
        assert_eq!(board.received(0, 2, 1, Instant::now()), Verdict::Done);
        assert!(board.is_complete() && board.complaints().is_empty());
        let summary = board.summary(&["a", "b"]).join("\n");
        assert!(summary.contains("exact for each of 2 keys; each key stayed with one consumer"), "{summary}");
        assert!(summary.contains("message 2 of key-0 failed in a, came back to a after"), "{summary}");
        assert!(summary.contains("(redelivery count 1)"), "{summary}");
    }

    #[test]
    fn a_key_out_of_order_and_a_message_not_received_are_told() {
        let mut board = board();
        receive(&mut board, 0, &[2, 0]);
        assert_eq!(
            board.complaints(),
            [
                "4 messages were not received",
                "1 messages came before an earlier one of their key",
                "the poisoned message did not come back"
            ]
        );
    }

    #[test]
    fn what_comes_twice_is_counted_once() {
        let mut board = board();
        receive(&mut board, 0, &[0, 0]);
        receive(&mut board, 1, &[99]);
        assert_eq!((board.received_count(), board.repeated), (1, 1));
    }
}
