#![no_main]

use std::sync::{Arc, OnceLock};

use hushtable_infer::dlrm::Dlrm;
use hushtable_infer::shares::price::Model;
use hushtable_infer::shares::{Half, Progress, Server};
use libfuzzer_sys::fuzz_target;

// What a client dealt and what the other server says, from anyone: other numbers or an error, never a panic, and no
// message after the answer. What is too short is filled up, so that more than lengths is tried.
fuzz_target!(|input: (bool, bool, Vec<u8>, Vec<u8>)| {
    static MODELS: OnceLock<[Model; 2]> = OnceLock::new();
    let models = MODELS.get_or_init(|| ["concat", "dot"].map(model));
    let (is_left, is_dot, dealt, messages) = input;
    let network = Arc::clone(&models[usize::from(is_dot)].network);
    let (half, outline) =
        (if is_left { Half::Left } else { Half::Right }, network.outline().clone());
    let own = if is_left { outline.left_bytes() } else { outline.right_bytes() };
    let mut bytes = dealt.iter().copied().chain(std::iter::repeat(0));
    let mut part = |count: usize| bytes.by_ref().take(count).collect::<Vec<_>>();
    let (common, own) = (part(outline.common_bytes()), part(own));
    let rows = part(outline.looked_bits() / 8);
    // Once as it is, which is of another length.
    assert!(Server::start(Arc::clone(&network), half, &dealt, &own, &[], &[1; 32]).is_err());
    let started = Server::start(network, half, &common, &own, &rows, &[1; 32]);
    let (mut server, mut progress) = started.expect("all is as long as it must be");
    let mut rest = messages.as_slice();
    while let Progress::Send(sent) = progress {
        // The other server's message is as long as this one's, unless it is the last that there is.
        let (message, after) = rest.split_at(sent.len().min(rest.len()));
        rest = after;
        match server.step(message) {
            Ok(next) => progress = next,
            Err(_) => return assert!(server.step(message).is_err(), "it is over"),
        }
    }
    assert!(server.step(&[]).is_err(), "it is over");
});

fn model(interaction: &str) -> Model {
    let spec = format!(
        r#"
        dense = 3
        bottom = [4, 2]
        top = [5, 1]
        dim = 2
        interaction = "{interaction}"
        activation = "relu"
        [[features]]
        name = "a"
        rows = 9
        [[features]]
        name = "b"
        rows = 4
        "#
    );
    let spec = Dlrm::parse(&spec).expect("a description").spec().clone();
    Model::synthetic(spec, 8, 8, 1).expect("a model")
}
