//! Exit codes: what a script learns of a failure. Decides the code for each kind of error, and nothing else.

use std::fmt;
use std::io;

use geminga::ErrorKind;

/// How the program ends. The numbers are documented in `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done = 0,
    Other = 1,
    Usage = 2,
    Unreachable = 3,
    Refused = 4,
}

impl Exit {
    /// The exit for an error: that of the first Pulsar error in its chain.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        for cause in error.chain() {
            if let Some(error) = cause.downcast_ref::<geminga::Error>() {
                return Exit::of_kind(error.kind(), error.server_message().is_some());
            }
            if cause.is::<UsageError>() {
                return Exit::Usage;
            }
            if let Some(error) = cause.downcast_ref::<AdminError>() {
                return match error {
                    AdminError::Unreachable(..) => Exit::Unreachable,
                    AdminError::Refused(..) => Exit::Refused,
                };
            }
            // The reader of our output went away, as `head` does: nothing is wrong.
            if cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) {
                return Exit::Done;
            }
        }
        Exit::Other
    }

    fn of_kind(kind: ErrorKind, from_broker: bool) -> Self {
        match kind {
            _ if from_broker => Exit::Refused,
            ErrorKind::InvalidConfiguration | ErrorKind::InvalidTopicName | ErrorKind::InvalidUrl => {
                Exit::Usage
            }
            ErrorKind::Timeout
            | ErrorKind::ConnectError
            | ErrorKind::ReadError
            | ErrorKind::NotConnected
            | ErrorKind::Disconnected => Exit::Unreachable,
            ErrorKind::LookupError
            | ErrorKind::AuthenticationError
            | ErrorKind::AuthorizationError
            | ErrorKind::BrokerMetadataError
            | ErrorKind::BrokerPersistenceError
            | ErrorKind::ConsumerBusy
            | ErrorKind::ProducerBusy
            | ErrorKind::TooManyLookupRequestException
            | ErrorKind::ServiceUnitNotReady
            | ErrorKind::ProducerBlockedQuotaExceededError
            | ErrorKind::ProducerBlockedQuotaExceededException
            | ErrorKind::MessageTooBig
            | ErrorKind::TopicNotFound
            | ErrorKind::SubscriptionNotFound
            | ErrorKind::ConsumerNotFound
            | ErrorKind::UnsupportedVersionError
            | ErrorKind::TopicTerminated
            | ErrorKind::IncompatibleSchema
            | ErrorKind::ConsumerAssignError
            | ErrorKind::NotAllowedError
            | ErrorKind::ProducerFenced => Exit::Refused,
            _ => Exit::Other,
        }
    }
}

/// What the user wrote cannot be meant.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// What became of a request to an admin API, by its address.
#[derive(Debug)]
pub(crate) enum AdminError {
    /// There was no answer.
    Unreachable(String, ureq::Error),
    /// It answered with this status.
    Refused(String, u16),
}

impl fmt::Display for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdminError::Unreachable(url, error) => write!(f, "cannot reach {url}: {error}"),
            AdminError::Refused(url, status) => write!(f, "{url} answered {status}"),
        }
    }
}

impl std::error::Error for AdminError {}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    fn exit(kind: ErrorKind) -> Exit {
        let error = Err::<(), _>(geminga::Error::new(kind, "consuming", "")).context("more").unwrap_err();
        Exit::of(&error)
    }

    #[test]
    fn each_kind_of_failure_has_its_code() {
        assert_eq!(exit(ErrorKind::ConnectError), Exit::Unreachable);
        assert_eq!(exit(ErrorKind::Timeout), Exit::Unreachable);
        assert_eq!(exit(ErrorKind::ConsumerBusy), Exit::Refused);
        assert_eq!(exit(ErrorKind::InvalidUrl), Exit::Usage);
        assert_eq!(exit(ErrorKind::Interrupted), Exit::Other);
        assert_eq!(Exit::of(&UsageError("no".to_owned()).into()), Exit::Usage);
        assert_eq!(Exit::of(&anyhow::anyhow!("anything")), Exit::Other);
    }

    #[test]
    fn what_a_broker_refused_is_refused_whatever_its_kind() {
        assert_eq!(Exit::of_kind(ErrorKind::UnknownError, true), Exit::Refused);
        assert_eq!(Exit::of_kind(ErrorKind::UnknownError, false), Exit::Other);
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let error = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).context("writing");
        assert_eq!(Exit::of(&error), Exit::Done);
    }
}
