//! The one error table: kind, stable code, whether to try again, and the sentence. Every call site uses it.

use std::fmt;
use std::sync::Arc;

use crate::wire::proto::ServerError;

/// What a server or link error means for the operation that met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// The broker says "not now", or the link broke: try again.
    Later,
    /// Somebody else holds the name or the subscription: `OperationRetries` says whether creation waits for it; once a
    /// handle has been open, it tries again, because the holder may be its own former self.
    Busy,
    /// Trying again gives the same answer.
    Never,
}

macro_rules! error_kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $retry:ident, $sentence:literal;)*) => {
        /// What went wrong, to branch on. Names and codes are those of the C++ client's `Result`, codes from 1000 are ours.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "the sentence of the table is the documentation")]
        pub enum ErrorKind { $($(#[$doc])* #[doc = $sentence] $name = $code,)* }

        impl ErrorKind {
            /// Every kind, in code order.
            pub const ALL: &'static [ErrorKind] = &[$(ErrorKind::$name,)*];

            /// The stable number of this kind.
            pub const fn code(self) -> u32 {
                self as u32
            }

            /// The name of this kind, as in the C++ client's `Result`.
            pub const fn name(self) -> &'static str {
                match self { $(ErrorKind::$name => stringify!($name),)* }
            }

            /// What this kind means, in one phrase.
            pub const fn sentence(self) -> &'static str {
                match self { $(ErrorKind::$name => $sentence,)* }
            }

            pub(crate) const fn retry(self) -> Retry {
                match self { $(ErrorKind::$name => Retry::$retry,)* }
            }
        }
    };
}

error_kinds! {
    UnknownError = 1, Later, "the broker reported an unknown error";
    InvalidConfiguration = 2, Never, "the configuration is invalid";
    Timeout = 3, Later, "timed out";
    LookupError = 4, Later, "the lookup failed";
    ConnectError = 5, Later, "could not connect";
    ReadError = 6, Later, "the broker sent bytes that are not the Pulsar protocol";
    AuthenticationError = 7, Never, "authentication failed";
    AuthorizationError = 8, Never, "not authorized";
    ErrorGettingAuthenticationData = 9, Later, "the credentials could not be read";
    BrokerMetadataError = 10, Later, "the broker could not reach its metadata";
    BrokerPersistenceError = 11, Later, "the broker could not store the data";
    ChecksumError = 12, Never, "the checksum does not match";
    ConsumerBusy = 13, Busy, "the subscription is in use by another consumer";
    NotConnected = 14, Later, "not connected";
    AlreadyClosed = 15, Never, "already closed";
    InvalidMessage = 16, Never, "the message or message id is invalid";
    ConsumerNotInitialized = 17, Never, "the consumer is not open";
    ProducerNotInitialized = 18, Never, "the producer is not open";
    ProducerBusy = 19, Busy, "the producer name is in use on this topic";
    TooManyLookupRequestException = 20, Later, "too many requests at once";
    InvalidTopicName = 21, Never, "the topic name is invalid";
    InvalidUrl = 22, Never, "the service URL is invalid";
    ServiceUnitNotReady = 23, Later, "the topic is not ready to be served";
    OperationNotSupported = 24, Never, "not supported";
    ProducerBlockedQuotaExceededError = 25, Later, "the backlog quota of the topic is exceeded";
    ProducerBlockedQuotaExceededException = 26, Later, "the backlog quota of the topic is exceeded and sends are refused";
    ProducerQueueIsFull = 27, Later, "the queue of pending messages is full";
    MessageTooBig = 28, Never, "the message is too big";
    TopicNotFound = 29, Never, "the topic or its namespace does not exist";
    SubscriptionNotFound = 30, Never, "the subscription does not exist";
    ConsumerNotFound = 31, Later, "the broker does not know this consumer";
    UnsupportedVersionError = 32, Never, "the broker's protocol version is too old for this";
    TopicTerminated = 33, Never, "the topic is terminated";
    CryptoError = 34, Never, "encryption or decryption failed";
    IncompatibleSchema = 35, Never, "the schema is incompatible with the topic's";
    ConsumerAssignError = 36, Never, "the broker could not assign key ranges to this consumer";
    CumulativeAcknowledgementNotAllowedError = 37, Never,
        "a cumulative acknowledgement is not allowed on a Shared or Key_Shared subscription";
    TransactionCoordinatorNotFoundError = 38, Later, "the transaction coordinator was not found";
    InvalidTxnStatusError = 39, Never, "the transaction is in the wrong state for this";
    NotAllowedError = 40, Never, "the broker does not allow this";
    TransactionConflict = 41, Never, "another transaction holds this message";
    TransactionNotFound = 42, Never, "the transaction does not exist";
    ProducerFenced = 43, Never, "another producer took over exclusive access";
    MemoryBufferIsFull = 44, Later, "the memory limit of the client is reached";
    Interrupted = 45, Never, "interrupted";
    Disconnected = 46, Later, "the connection was lost";
}

impl ErrorKind {
    /// The kind for a server's error number; numbers of newer brokers are `UnknownError`.
    pub(crate) fn from_server(code: i32) -> Self {
        let Ok(code) = ServerError::try_from(code) else { return ErrorKind::UnknownError };
        match code {
            ServerError::UnknownError => ErrorKind::UnknownError,
            ServerError::MetadataError => ErrorKind::BrokerMetadataError,
            ServerError::PersistenceError => ErrorKind::BrokerPersistenceError,
            ServerError::AuthenticationError => ErrorKind::AuthenticationError,
            ServerError::AuthorizationError => ErrorKind::AuthorizationError,
            ServerError::ConsumerBusy => ErrorKind::ConsumerBusy,
            ServerError::ServiceNotReady => ErrorKind::ServiceUnitNotReady,
            ServerError::ProducerBlockedQuotaExceededError => ErrorKind::ProducerBlockedQuotaExceededError,
            ServerError::ProducerBlockedQuotaExceededException => {
                ErrorKind::ProducerBlockedQuotaExceededException
            }
            ServerError::ChecksumError => ErrorKind::ChecksumError,
            ServerError::UnsupportedVersionError => ErrorKind::UnsupportedVersionError,
            ServerError::TopicNotFound => ErrorKind::TopicNotFound,
            ServerError::SubscriptionNotFound => ErrorKind::SubscriptionNotFound,
            ServerError::ConsumerNotFound => ErrorKind::ConsumerNotFound,
            ServerError::TooManyRequests => ErrorKind::TooManyLookupRequestException,
            ServerError::TopicTerminatedError => ErrorKind::TopicTerminated,
            ServerError::ProducerBusy => ErrorKind::ProducerBusy,
            ServerError::InvalidTopicName => ErrorKind::InvalidTopicName,
            ServerError::IncompatibleSchema => ErrorKind::IncompatibleSchema,
            ServerError::ConsumerAssignError => ErrorKind::ConsumerAssignError,
            ServerError::TransactionCoordinatorNotFound => ErrorKind::TransactionCoordinatorNotFoundError,
            ServerError::InvalidTxnStatus => ErrorKind::InvalidTxnStatusError,
            ServerError::NotAllowedError => ErrorKind::NotAllowedError,
            ServerError::TransactionConflict => ErrorKind::TransactionConflict,
            ServerError::TransactionNotFound => ErrorKind::TransactionNotFound,
            ServerError::ProducerFenced => ErrorKind::ProducerFenced,
        }
    }
}

/// An error of this client: its kind, and one sentence about what was attempted on which topic.
///
/// Shape: cheap to clone, since one failed batch fails each of its messages. Never holds a secret or a payload.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    /// What was being done, such as `lookup of persistent://a/b/c`.
    doing: String,
    /// What is particular about this case; empty when the kind's sentence says it all.
    detail: String,
    /// The broker's own words.
    server: Option<String>,
}

impl Error {
    /// An error of `kind` while `doing` something; `detail` may be empty.
    pub fn new(kind: ErrorKind, doing: impl Into<String>, detail: impl Into<String>) -> Self {
        Error(Arc::new(Inner { kind, doing: doing.into(), detail: detail.into(), server: None }))
    }

    pub(crate) fn from_server(code: i32, message: Option<&str>, doing: impl Into<String>) -> Self {
        let server = message.filter(|m| !m.is_empty()).map(str::to_owned);
        let kind = ErrorKind::from_server(code);
        Error(Arc::new(Inner { kind, doing: doing.into(), detail: String::new(), server }))
    }

    /// The same error, told of a larger undertaking: what was being done becomes part of the detail.
    pub(crate) fn while_doing(&self, doing: impl Into<String>) -> Self {
        let mut inner = (*self.0).clone();
        let was = std::mem::replace(&mut inner.doing, doing.into());
        if !was.is_empty() && was != inner.doing {
            inner.detail = match inner.detail.is_empty() {
                true => was,
                false => format!("{was}: {}", inner.detail),
            };
        }
        Error(Arc::new(inner))
    }

    /// The same error, with one more fact.
    pub(crate) fn adding(&self, fact: impl fmt::Display) -> Self {
        let mut inner = (*self.0).clone();
        inner.detail = match inner.detail.is_empty() {
            true => fact.to_string(),
            false => format!("{}; {fact}", inner.detail),
        };
        Error(Arc::new(inner))
    }

    /// What went wrong, to branch on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.kind().retry() != Retry::Never
    }

    /// Whether the link broke, which says nothing of what was asked: it can be asked again on the next one.
    pub(crate) fn is_link(&self) -> bool {
        matches!(self.kind(), ErrorKind::ConnectError | ErrorKind::Disconnected | ErrorKind::NotConnected)
    }

    /// The broker's own words, when it was the broker that refused.
    pub fn server_message(&self) -> Option<&str> {
        self.0.server.as_deref()
    }

    pub(crate) fn retry(&self) -> Retry {
        self.kind().retry()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, doing, detail, server } = &*self.0;
        if !doing.is_empty() {
            write!(f, "{doing} failed: ")?;
        }
        f.write_str(kind.sentence())?;
        if !detail.is_empty() {
            write!(f, " ({detail})")?;
        }
        match server {
            Some(words) => write!(f, "; the broker said: {}", words.replace(['\n', '\r'], " ")),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({self})", self.kind().name())
    }
}

impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        self.kind() == other.kind() && self.to_string() == other.to_string()
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_existing_c_api() {
        assert_eq!(ErrorKind::UnknownError.code(), 1);
        assert_eq!(ErrorKind::Timeout.code(), 3);
        assert_eq!(ErrorKind::MessageTooBig.code(), 28);
        assert_eq!(ErrorKind::Disconnected.code(), 46);
        assert!(ErrorKind::ALL.windows(2).all(|w| w[0].code() + 1 == w[1].code()), "no gap, no double");
    }

    #[test]
    fn every_server_error_has_a_kind_and_unknown_ones_are_retried() {
        let expected: [(i32, ErrorKind, Retry); 8] = [
            (1, ErrorKind::BrokerMetadataError, Retry::Later),
            (4, ErrorKind::AuthorizationError, Retry::Never),
            (5, ErrorKind::ConsumerBusy, Retry::Busy),
            (6, ErrorKind::ServiceUnitNotReady, Retry::Later),
            (11, ErrorKind::TopicNotFound, Retry::Never),
            (14, ErrorKind::TooManyLookupRequestException, Retry::Later),
            (15, ErrorKind::TopicTerminated, Retry::Never),
            (25, ErrorKind::ProducerFenced, Retry::Never),
        ];
        for (code, kind, retry) in expected {
            assert_eq!((ErrorKind::from_server(code), kind.retry()), (kind, retry));
        }
        assert_eq!(ErrorKind::from_server(99), ErrorKind::UnknownError);
    }

    #[test]
    fn the_sentence_names_the_topic_and_the_cause_on_one_line() {
        let e = Error::from_server(4, Some("no\nway"), "lookup of persistent://a/b/c");
        assert_eq!(
            e.to_string(),
            "lookup of persistent://a/b/c failed: not authorized; the broker said: no way"
        );
        assert!(!e.is_retryable());
        let e = Error::new(ErrorKind::ConnectError, "connecting to pulsar://a:1", "refused");
        assert_eq!(
            e.while_doing("lookup of t").to_string(),
            "lookup of t failed: could not connect (connecting to pulsar://a:1: refused)"
        );
    }
}
