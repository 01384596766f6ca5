//! `geminga consume`: messages of a subscription to stdout, each acknowledged once it has been written.

use std::io::{BufWriter, StdoutLock, Write as _, stdout};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use geminga::{Client, Consumer, Message};

use crate::args::{ConnectionArgs, Start, TypeOfSubscription, seconds};
use crate::connect::connect;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output::{OutputArgs, write_message};
use crate::pauses::patiently;
use crate::progress::{Progress, group, per_second};

/// Messages between two looks at the world while there is always one more to take.
const BREATH: u64 = 256;

#[derive(Args, Debug)]
pub(crate) struct ConsumeArgs {
    /// Topic, in short or full form
    topic: String,

    /// Stop after this many messages; without it, go on until interrupted
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,

    /// Subscription; it stays when the command ends
    #[arg(short, long, default_value = "geminga", value_name = "NAME")]
    subscription: String,

    /// How the subscription shares its messages among consumers
    #[arg(short = 't', long = "type", value_enum, default_value_t = TypeOfSubscription::Exclusive, value_name = "TYPE")]
    subscription_type: TypeOfSubscription,

    /// Where a new subscription starts
    #[arg(long, value_enum, default_value_t = Start::Latest, value_name = "POSITION")]
    from: Start,

    /// Do not acknowledge: the messages stay in the subscription
    #[arg(long)]
    no_ack: bool,

    /// Stop when no message came for this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,

    /// Name of this consumer in the topic's statistics
    #[arg(long, value_name = "NAME")]
    consumer_name: Option<String>,

    /// Messages asked for ahead
    #[arg(long, value_name = "N", default_value_t = 1000)]
    receiver_queue: u32,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) async fn run(args: ConsumeArgs, quiet: bool) -> Result<Exit> {
    let interrupt = Interrupt::listen()?;
    let client = connect(&args.connection, quiet)?;
    let consumer = interrupt.or(patiently(open(&client, &args), quiet)).await?;
    let mut sink = Sink::new(&consumer, &args, quiet);
    let received = receive(&consumer, &args, &interrupt, &mut sink).await;
    let flushed = match &received {
        // What could not be written was not acknowledged; the error is told below.
        Err(_) => Ok(()),
        Ok(()) => sink.flush(),
    };
    let (count, started) = sink.finish();
    let closed = consumer.close().await;
    let ended = client.close().await;
    received.and(flushed)?;
    closed?;
    ended?;
    if !quiet {
        let what = if args.no_ack { "received, none acknowledged" } else { "received and acknowledged" };
        let elapsed = started.elapsed();
        let rate = group(per_second(count, elapsed) as u64);
        eprintln!("{} {what} in {:.2} s ({rate} msg/s)", group(count), elapsed.as_secs_f64());
    }
    Ok(Exit::Done)
}

async fn open(client: &Client, args: &ConsumeArgs) -> Result<Consumer> {
    let mut consumer = client
        .consumer(args.topic.as_str(), args.subscription.as_str())
        .subscription_type(args.subscription_type.into())
        .initial_position(args.from.into())
        .receiver_queue_size(args.receiver_queue);
    if let Some(name) = &args.consumer_name {
        consumer = consumer.consumer_name(name.as_str());
    }
    Ok(consumer.subscribe().await?)
}

async fn receive(
    consumer: &Consumer,
    args: &ConsumeArgs,
    interrupt: &Interrupt,
    sink: &mut Sink<'_>,
) -> Result<()> {
    while args.count.is_none_or(|n| sink.count < n) {
        if sink.count % BREATH == BREATH - 1 {
            tokio::task::yield_now().await;
            if interrupt.is_asked() {
                return Ok(());
            }
        }
        let message = match consumer.try_receive()? {
            Some(message) => message,
            None => {
                // Nobody waits for lines in a buffer: write and acknowledge before sleeping.
                sink.flush()?;
                tokio::select! {
                    message = consumer.receive() => message?,
                    () = interrupt.asked() => return Ok(()),
                    () = idle(args.timeout) => return Ok(()),
                }
            }
        };
        sink.take(message)?;
    }
    Ok(())
}

async fn idle(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}

/// Writes messages, then acknowledges them: in this order, so that none is lost with a broken pipe.
struct Sink<'a> {
    consumer: &'a Consumer,
    output: OutputArgs,
    acknowledge: bool,
    out: BufWriter<StdoutLock<'static>>,
    /// Written to `out`, which may not have passed them on yet.
    written: Vec<Message>,
    count: u64,
    progress: Progress,
    started: Instant,
}

impl<'a> Sink<'a> {
    fn new(consumer: &'a Consumer, args: &ConsumeArgs, quiet: bool) -> Self {
        // A terminal that shows the messages themselves needs no progress.
        let quiet = quiet || std::io::IsTerminal::is_terminal(&stdout());
        Sink {
            consumer,
            output: args.output,
            acknowledge: !args.no_ack,
            out: BufWriter::with_capacity(64 << 10, stdout().lock()),
            written: Vec::new(),
            count: 0,
            progress: Progress::new("consuming", args.count, quiet),
            started: Instant::now(),
        }
    }

    fn take(&mut self, message: Message) -> Result<()> {
        write_message(&mut self.out, self.output, &message)?;
        self.count += 1;
        self.progress.add(1);
        if self.acknowledge {
            self.written.push(message);
            if self.written.len() >= BREATH as usize {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.out.flush()?;
        for message in self.written.drain(..) {
            self.consumer.acknowledge(&message)?;
        }
        Ok(())
    }

    fn finish(self) -> (u64, Instant) {
        self.progress.finish();
        (self.count, self.started)
    }
}
