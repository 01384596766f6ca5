//! Operations that end with one answer. Decides how long an answer is kept: as long as somebody waits for it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use geminga_core::{Error, Now, OpId, Reply};

use crate::shared::Shared;
use crate::state::State;

/// An operation under way. Dropping it forgets its answer, not the operation.
#[must_use = "the answer tells whether it worked"]
pub(crate) struct Op<'a> {
    shared: &'a Shared,
    id: OpId,
}

impl Shared {
    /// Begins an operation.
    pub(crate) fn op(
        &self,
        command: impl FnOnce(&mut State, Now) -> Result<OpId, Error>,
    ) -> Result<Op<'_>, Error> {
        let id = self.with(|state, now| {
            state.alive()?;
            let id = command(state, now)?;
            state.begin(id);
            Ok::<_, Error>(id)
        })?;
        Ok(Op { shared: self, id })
    }
}

impl Future for Op<'_> {
    type Output = Result<Reply, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.shared.with(|state, _| state.poll_op(self.id, cx))
    }
}

impl Drop for Op<'_> {
    fn drop(&mut self) {
        self.shared.with(|state, _| state.forget_op(self.id));
    }
}
