//! What a test reads out of a command that it heard. Panics on a command of another kind: that is the test's fault.

use geminga_core::MessageId;
use geminga_core::compression::{Compression, decompress};
use geminga_core::wire::{Command, next_record, proto};
use prost::Message as _;

use super::script::{Heard, receipt};

const LARGEST_VALUE: usize = 64 << 20;

macro_rules! views {
    ($($name:ident $variant:ident $body:ident;)*) => {$(
        #[doc = concat!("The body of ", stringify!($variant), ".")]
        pub fn $name(&self) -> &proto::$body {
            match &self.command {
                Command::$variant(body) => body,
                other => panic!("{} is no {}", other.name(), stringify!($variant)),
            }
        }
    )*};
}

impl Heard {
    views! {
        as_connect Connect CommandConnect;
        as_lookup Lookup CommandLookupTopic;
        as_producer Producer CommandProducer;
        as_close_producer CloseProducer CommandCloseProducer;
        as_subscribe Subscribe CommandSubscribe;
        as_flow Flow CommandFlow;
        as_send Send CommandSend;
        as_auth_response AuthResponse CommandAuthResponse;
    }

    /// The id that an answer must carry.
    pub fn request_id(&self) -> u64 {
        match &self.command {
            Command::Lookup(c) => c.request_id,
            Command::PartitionedMetadata(c) => c.request_id,
            Command::GetTopicsOfNamespace(c) => c.request_id,
            Command::Producer(c) => c.request_id,
            Command::CloseProducer(c) => c.request_id,
            Command::Subscribe(c) => c.request_id,
            Command::CloseConsumer(c) => c.request_id,
            Command::Unsubscribe(c) => c.request_id,
            Command::Seek(c) => c.request_id,
            Command::GetLastMessageId(c) => c.request_id,
            other => panic!("{} has no request id", other.name()),
        }
    }

    /// The metadata behind a SEND.
    pub fn metadata(&self) -> proto::MessageMetadata {
        let payload = self.payload.as_ref().expect("a SEND has a payload");
        proto::MessageMetadata::decode(&payload.metadata[..]).expect("a client writes metadata")
    }

    /// The values behind a SEND as text, out of their batch and uncompressed.
    pub fn texts(&self) -> Vec<String> {
        let (metadata, payload) = (self.metadata(), self.payload.as_ref().expect("a SEND has a payload"));
        let codec = Compression::from_number(metadata.compression.unwrap_or(0)).expect("a known codec");
        let body = decompress(codec, &payload.body, metadata.uncompressed_size(), LARGEST_VALUE)
            .expect("a client writes what can be read");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if metadata.num_messages_in_batch.is_none() {
            return vec![text(&body)];
        }
        let (mut at, mut texts) = (0, Vec::new());
        while let Some(record) = next_record(&body, &mut at).expect("a client writes whole records") {
            texts.push(text(record.payload(&body)));
        }
        texts
    }

    /// The receipt for a SEND, stored in ledger 1 at `entry`.
    pub fn receipt(&self, entry: i64) -> Command {
        let send = self.as_send();
        receipt(send.producer_id, send.sequence_id, MessageId::new(1, entry, -1))
    }
}
