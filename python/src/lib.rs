//! `geminga._geminga`, the extension module under the Python package `geminga`.
//!
//! It translates and decides no protocol: each class holds a handle of the crate `geminga`, whose client works on a thread
//! of its own that never runs Python. A call takes what is there without giving the interpreter away, and gives it away to wait.
//! Python code runs on two threads of each client, one for callbacks and one for listeners.
//!
//! | where | what |
//! |---|---|
//! | `client`, `producer`, `consumer`, `reader`, `message`, `message_id` | the classes |
//! | `receiving` | what consumers and readers share |
//! | `outgoing`, `auth`, `errors`, `batch_receive` | what Python gives as core takes it, and back |
//! | `waiting` | blocking calls: asleep without the interpreter, woken by a waker, open to Ctrl-C |
//! | `executor`, `callbacks`, `listener` | the threads that call Python, and what they call |
//! | `operation` | calls of asyncio, and how they complete futures |
//! | `logs` | records for Python's `logging` |
//! | `fork` | what a forked child finds |
//! | `testing` | the embedded broker |

mod auth;
mod batch_receive;
mod callbacks;
mod client;
mod consumer;
mod errors;
mod executor;
mod fork;
mod listener;
mod logs;
mod message;
mod message_id;
mod operation;
mod outgoing;
mod producer;
mod reader;
mod receiving;
mod testing;
mod waiting;

/// The native part of `geminga`. Import `geminga` instead.
#[pyo3::pymodule]
mod _geminga {
    #[pymodule_export]
    use crate::callbacks::_set_results;
    #[pymodule_export]
    use crate::client::{_at_exit, ClientCore};
    #[pymodule_export]
    use crate::consumer::Consumer;
    #[pymodule_export]
    use crate::errors::{_error_table, _set_error_classes};
    #[pymodule_export]
    use crate::fork::_after_fork;
    #[pymodule_export]
    use crate::logs::_start_logs;
    #[pymodule_export]
    use crate::message::Message;
    #[pymodule_export]
    use crate::message_id::MessageId;
    #[pymodule_export]
    use crate::operation::{_set_finish, Operation, Outcome, Target};
    #[pymodule_export]
    use crate::producer::Producer;
    #[pymodule_export]
    use crate::reader::Reader;
    #[pymodule_export]
    use crate::testing::Broker;
}
