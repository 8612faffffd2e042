//! Spans that have their parent at another server of the same operator: a front's message to a shard says which
//! pass it is part of, as `traceparent` of W3C's Trace Context does.
//!
//! Messages of clients have no such field: an id that a client sent to both servers would join its two requests.

use std::cell::Cell;

use super::Context;
use super::request::with_offered;

thread_local! {
    static PASS: Cell<Option<Context>> = const { Cell::new(None) };
}

/// The pass that runs on this thread, as a message to another server of the operator names it; None where it is not
/// traced.
pub(crate) fn traceparent() -> Option<String> {
    PASS.get().map(Context::to_traceparent)
}

/// Makes the request that is worked for here a child of the span that a front named. What is no `traceparent` of a
/// sampled span is as if there were none.
pub(crate) fn join(traceparent: Option<&str>) {
    if let Some(parent) = traceparent.and_then(Context::from_traceparent) {
        with_offered(|request| request.join(parent));
    }
}

/// A pass that runs on this thread, until this is dropped.
pub(crate) struct Passing {
    before: Option<Context>,
}

impl Passing {
    pub(super) fn begin(pass: Context) -> Self {
        Self { before: PASS.replace(Some(pass)) }
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        PASS.set(self.before);
    }
}

impl Context {
    /// Version 00, of a sampled span.
    fn to_traceparent(self) -> String {
        let Self { trace, span } = self;
        format!("00-{:032x}-{:016x}-01", u128::from_be_bytes(trace), u64::from_be_bytes(span))
    }

    fn from_traceparent(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let [version, trace, span, flags] =
            std::array::from_fn(|_| parts.next().unwrap_or_default());
        let is_whole = version == "00" && parts.next().is_none();
        let (trace, span) = (u128::from_be_bytes(hex(trace)?), u64::from_be_bytes(hex(span)?));
        let [flags] = hex(flags)?;
        let is_sampled = is_whole && trace != 0 && span != 0 && flags & SAMPLED != 0;
        is_sampled.then(|| Self { trace: trace.to_be_bytes(), span: span.to_be_bytes() })
    }
}

/// Bytes of just so many lower-case digits.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |&byte: &u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(&pair[0])? << 4 | digit(&pair[1])?;
    }
    Some(bytes)
}

const SAMPLED: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_none_is_not() {
        // The example of W3C's Trace Context, section 3.2.
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = Context::from_traceparent(text).unwrap();
        assert_eq!(context.trace[..4], [0x4b, 0xf9, 0x2f, 0x35]);
        assert_eq!(context.span, [0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
        assert_eq!(context.to_traceparent(), text);
        for bad in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e47361-0f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473\u{e9}-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        ] {
            assert_eq!(Context::from_traceparent(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_pass_is_named_on_its_thread_while_it_runs_and_not_after_a_panic() {
        let context = Context { trace: [7; 16], span: [9; 8] };
        assert_eq!(traceparent(), None);
        let told = std::panic::catch_unwind(|| {
            let _passing = Passing::begin(context);
            assert_eq!(std::thread::spawn(traceparent).join().unwrap(), None);
            std::panic::resume_unwind(Box::new(traceparent()));
        });
        let told = *told.unwrap_err().downcast::<Option<String>>().unwrap();
        assert_eq!(told.as_deref().and_then(Context::from_traceparent), Some(context));
        assert_eq!(traceparent(), None);
    }
}
