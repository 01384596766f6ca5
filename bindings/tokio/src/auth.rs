//! Where tokens come from. Decides how they are read, anew for each connection; knows nothing of how they travel.

use std::fmt;
use std::fs;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use geminga_core::{Answer, Ask};
use tokio::task::{AbortHandle, JoinSet};

/// What a token callback may fail with.
pub type TokenError = Box<dyn std::error::Error + Send + Sync>;

type TokenFuture = Pin<Box<dyn Future<Output = Result<String, TokenError>> + Send>>;

/// A token that may change from connection to connection.
#[derive(Clone)]
pub(crate) enum TokenSource {
    /// The file's content without surrounding white space.
    File(PathBuf),
    /// An asynchronous function.
    Future(Arc<dyn Fn() -> TokenFuture + Send + Sync>),
    /// A function that may block.
    Blocking(Arc<dyn Fn() -> Result<String, TokenError> + Send + Sync>),
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenSource::File(path) => write!(f, "File({})", path.display()),
            TokenSource::Future(_) => f.write_str("Future(..)"),
            TokenSource::Blocking(_) => f.write_str("Blocking(..)"),
        }
    }
}

/// The answer to one question of core.
pub(crate) type Answered = Result<Answer, String>;

impl TokenSource {
    /// Starts finding the answer in a task of its own: users' functions may take their time, or panic.
    pub(crate) fn ask(source: Option<&TokenSource>, ask: &Ask, tasks: &mut JoinSet<Answered>) -> AbortHandle {
        match (ask, source.cloned()) {
            (Ask::Credentials, Some(TokenSource::File(path))) => tasks.spawn_blocking(move || {
                answer(fs::read_to_string(&path).map_err(|e| format!("token file {}: {e}", path.display())))
            }),
            (Ask::Credentials, Some(TokenSource::Blocking(function))) => {
                tasks.spawn_blocking(move || answer(function().map_err(|e| e.to_string())))
            }
            (Ask::Credentials, Some(TokenSource::Future(function))) => {
                tasks.spawn(async move { answer(function().await.map_err(|e| e.to_string())) })
            }
            (Ask::Credentials, None) => tasks.spawn(async { Err("no source of credentials is set".into()) }),
        }
    }
}

fn answer(token: Result<String, String>) -> Result<Answer, String> {
    let token = token?;
    match token.trim() {
        "" => Err("the token is empty".into()),
        token => Ok(Answer::Credentials(token.as_bytes().to_vec())),
    }
}
