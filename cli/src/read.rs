//! `geminga read`: a topic from a position to its end, without a subscription that stays.

use std::io::{BufWriter, Write as _, stdout};
use std::str::FromStr;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use geminga::{Client, Message, MessageId, Position, Reader};

use crate::args::ConnectionArgs;
use crate::connect::connect;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output::{OutputArgs, write_message};
use crate::pauses::patiently;
use crate::progress::{Progress, group, per_second};

#[derive(Args, Debug)]
pub(crate) struct ReadArgs {
    /// Topic, in short or full form
    topic: String,

    /// Where to start: earliest, latest, or a message id such as 12:0:-1, which itself is left out
    #[arg(long, default_value = "earliest", value_name = "POSITION", value_parser = position, allow_hyphen_values = true)]
    from: Position,

    /// Begin with the message that --from names
    #[arg(long)]
    inclusive: bool,

    /// Stop after this many messages
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,

    /// Wait for new messages at the end of the topic
    #[arg(short = 'f', long)]
    follow: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) async fn run(args: ReadArgs, quiet: bool) -> Result<Exit> {
    let interrupt = Interrupt::listen()?;
    let client = connect(&args.connection, quiet)?;
    let reader = interrupt.or(patiently(open(&client, &args), quiet)).await?;
    let mut out = BufWriter::with_capacity(64 << 10, stdout().lock());
    let bar = !quiet && !std::io::IsTerminal::is_terminal(&stdout());
    let mut progress = Progress::new("reading", args.count, !bar);
    let started = Instant::now();
    let mut count = 0;
    while args.count.is_none_or(|n| count < n) && !interrupt.is_asked() {
        if args.follow {
            // Written lines must not wait with us.
            out.flush()?;
        }
        let message = tokio::select! {
            message = next(&reader, args.follow) => message?,
            () = interrupt.asked() => break,
        };
        let Some(message) = message else { break };
        write_message(&mut out, args.output, &message)?;
        count += 1;
        progress.add(1);
    }
    out.flush()?;
    progress.finish();
    reader.close().await?;
    client.close().await?;
    if !quiet {
        let elapsed = started.elapsed();
        let rate = group(per_second(count, elapsed) as u64);
        eprintln!("{} read in {:.2} s ({rate} msg/s)", group(count), elapsed.as_secs_f64());
    }
    Ok(Exit::Done)
}

async fn open(client: &Client, args: &ReadArgs) -> Result<Reader> {
    let reader = client.reader(args.topic.as_str(), args.from).start_message_id_inclusive(args.inclusive);
    Ok(reader.create().await?)
}

/// The next message; at the end of the topic it is waited for, or there is none.
async fn next(reader: &Reader, follow: bool) -> Result<Option<Message>> {
    if !follow && !reader.has_message_available().await? {
        return Ok(None);
    }
    Ok(Some(reader.next().await?))
}

fn position(text: &str) -> Result<Position, String> {
    match text {
        "earliest" => Ok(Position::Earliest),
        "latest" => Ok(Position::Latest),
        id => {
            MessageId::from_str(id).map(Position::Id).map_err(|e| format!("not earliest or latest, and {e}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_a_word_or_a_message_id() {
        assert_eq!(position("earliest"), Ok(Position::Earliest));
        assert_eq!(position("7:3:-1"), Ok(Position::Id(MessageId::new(7, 3, -1))));
        assert!(position("yesterday").unwrap_err().contains("ledger:entry"));
    }
}
