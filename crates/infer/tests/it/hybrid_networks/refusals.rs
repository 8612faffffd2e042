//! What bad graphs and weights get.

use hushtable_infer::dlrm::weights::Tensors;
use hushtable_infer::hybrid::network::{Error, Network, lower};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::graphs::Graph;

fn good() -> Graph {
    let mut own = Graph::new([2, 6, 6], 1);
    own.conv(4, [3, 3], [1, 1], [1; 4], 1);
    own.norm(0.1);
    own.relu();
    own.pool("max_pool", [2, 2], [2, 2]);
    own.flatten();
    own.linear(3);
    own
}

/// What a changed graph gets.
fn changed(change: impl FnOnce(&mut Value)) -> Error {
    let own = good();
    let mut json = own.json();
    change(&mut json);
    Network::parse(&json.to_string(), own.tensors).unwrap_err()
}

#[test]
fn unsupported_operators_are_named_with_where() {
    for operator in ["gelu", "layer_norm", "conv_transpose", "Conv"] {
        let error = changed(|json| json["nodes"][2]["op"] = json!(operator));
        let Error::Unsupported { node, operator: found, input, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((node.as_str(), found.as_str(), input.as_str()), ("n2", operator, "n1"));
        let text = error.to_string();
        assert!(text.contains("n2") && text.contains(operator), "{text}");
    }
    let refused = |change: &dyn Fn(&mut Graph)| {
        let mut own = Graph::new([2, 6, 6], 1);
        own.conv(4, [3, 3], [1, 1], [1; 4], 1);
        change(&mut own);
        own.conv(4, [1, 1], [1, 1], [0; 4], 1);
        let error = lower(&own.network()).unwrap_err();
        let Error::Unsupported { node, .. } = &error else { panic!("{error}") };
        assert_eq!(node, "n1");
    };
    // A window that lies in the pad has no largest number.
    refused(&|own| own.padded_pool("max_pool", [2, 2], [2, 2], [0, 2, 0, 0]));
    refused(&|own| {
        own.push(json!({"op": "softmax"}), [4, 6, 6]);
    });
}

#[test]
fn graphs_that_are_none_say_why() {
    type Change = fn(&mut Value);
    let graphs: [Change; 11] = [
        |json| json["format"] = json!(2),
        |json| json["nodes"] = json!([]),
        |json| json["more"] = json!(1),
        |json| json["output"] = json!("n99"),
        |json| json["output"] = json!("input"),
        |json| json["nodes"][1]["name"] = json!("n0"),
        |json| json["nodes"][1]["name"] = json!("input"),
        |json| json["nodes"][1]["name"] = json!(7),
        |json| json["nodes"][1]["name"] = json!("a\u{7}b"),
        |json| json["input"]["shape"] = json!([1_u64 << 33, 1_u64 << 33, 2]),
        |json| json["input"]["range"] = json!([2.0, 1.0]),
    ];
    for (index, change) in graphs.into_iter().enumerate() {
        let error = changed(change);
        assert!(matches!(error, Error::Graph { .. }), "{index}: {error}");
    }
    let nodes: [Change; 15] = [
        |json| json["nodes"][0]["inputs"] = json!(["n3"]),
        |json| json["nodes"][0]["inputs"] = json!([]),
        |json| json["nodes"][2]["inputs"] = json!(["n0", "n1"]),
        |json| json["nodes"][0]["dilation"] = json!(2),
        |json| json["nodes"][0]["stride"] = json!([0, 1]),
        |json| json["nodes"][0]["stride"] = json!([1]),
        |json| json["nodes"][0]["pad"] = json!([1_u64 << 40, 0, 0, 0]),
        |json| json["nodes"][0]["groups"] = json!(0),
        |json| json["nodes"][0]["groups"] = json!(3),
        |json| json["nodes"][1]["epsilon"] = json!(-100.0),
        |json| json["nodes"][3]["kernel"] = json!([7, 1]),
        |json| json["nodes"][3]["kernel"] = json!([0, 1]),
        |json| json["nodes"][4] = json!({"name": "x", "op": "relu", "inputs": ["n3"]}),
        |json| json["nodes"][5]["inputs"] = json!(["n3"]),
        |json| {
            json["nodes"][2] = json!({"name": "n2", "op": "add", "inputs": ["n1", "input"]});
        },
    ];
    for (index, change) in nodes.into_iter().enumerate() {
        let error = changed(change);
        assert!(matches!(error, Error::Node { .. }), "{index}: {error}");
    }
}

#[test]
fn weights_that_are_missing_or_of_another_shape_are_named() {
    let error = changed(|json| json["nodes"][0]["weight"] = json!("other"));
    let Error::MissingTensor { node, tensor, .. } = &error else { panic!("{error}") };
    assert_eq!((node.as_str(), tensor.as_str()), ("n0", "other"));
    // The linear layer's, for a convolution.
    let error = changed(|json| json["nodes"][0]["weight"] = json!("t6"));
    assert!(matches!(error, Error::TensorShape { .. }), "{error}");
    let error = changed(|json| json["nodes"][1]["mean"] = json!("t0"));
    assert!(matches!(error, Error::TensorShape { .. }), "{error}");
    let mut own = good();
    own.tensors.get_mut("t0").unwrap().values[7] = f32::NAN;
    let error = own.parse().unwrap_err();
    assert!(matches!(error, Error::Node { .. }) && error.to_string().contains("t0"), "{error}");
    // A shape that says more than there is.
    let mut own = good();
    own.tensors.get_mut("t0").unwrap().values.pop();
    assert!(matches!(own.parse().unwrap_err(), Error::TensorShape { .. }));
}

#[test]
fn what_a_few_weights_would_blow_up_is_refused() {
    // A convolution of as many groups as planes, and factors before zeros around an image.
    let count = 1 << 16;
    let mut own = Graph::new([count, 1, 1], 1);
    own.conv(count, [1, 1], [1, 1], [0; 4], count);
    let error = own.parse().unwrap_err();
    assert!(matches!(error, Error::Node { .. }), "{error}");
    let mut own = Graph::new([count, 1, 1], 1);
    own.norm(-1.0);
    own.relu();
    let whole = own.json();
    own.nodes.push(json!({"name": "sum", "op": "add", "inputs": ["n1", "n1"]}));
    let error = lower(&own.network_named("sum")).unwrap_err();
    let Error::Node { node, .. } = &error else { panic!("{error}") };
    assert_eq!(node, "n1", "{whole}");
}

/// Each is allowed, and nine are more than a program may have: no memory is taken for what no stage will hold.
#[test]
fn convolutions_that_are_too_many_together_are_refused_at_the_first_too_many() {
    let count = 1 << 13;
    let mut own = Graph::new([count, 1, 1], 1);
    own.conv(count, [1, 1], [1, 1], [0; 4], count);
    for _ in 0..40 {
        let mut node = own.nodes[0].clone();
        node["inputs"] = json!([own.last()]);
        own.push(node, [count, 1, 1]);
    }
    let error = lower(&own.network()).unwrap_err();
    let Error::Node { node, .. } = &error else { panic!("{error}") };
    assert_eq!(node, "n16", "{error}");
}

/// Twice as many with each node: a graph of two dozen took gigabytes.
#[test]
fn parts_that_are_too_many_are_refused_where_they_are_put_together() {
    let mut own = Graph::new([1, 1, 1], 1);
    own.push(json!({"op": "concat", "inputs": ["input", "input"]}), [2, 1, 1]);
    for node in 0..7 {
        own.concat(&[node]);
    }
    own.linear(1);
    let error = lower(&own.network()).unwrap_err();
    let Error::Node { node, .. } = &error else { panic!("{error}") };
    assert_eq!(node, "n6", "{error}");
}

#[test]
fn a_file_without_a_network_says_so() {
    let network = good().network();
    let bytes = network.to_safetensors().unwrap();
    assert_eq!(Network::from_safetensors(&bytes).unwrap(), network);
    let error = Network::from_safetensors(b"\x08\0\0\0\0\0\0\0{}      ").unwrap_err();
    assert!(matches!(error, Error::Graph { .. }), "{error}");
    assert!(error.to_string().contains("infer import"), "{error}");
    for length in [0, 7, 8, 100, bytes.len() - 1] {
        assert!(Network::from_safetensors(&bytes[..length]).is_err(), "{length}");
    }
}

#[test]
fn a_networks_debug_has_no_weights() {
    let own = good();
    let value = own.tensors["t0"].values[0];
    assert!(!format!("{:?}", own.network()).contains(&value.to_string()));
}

/// Every value of a document in turn, replaced.
fn mutants(json: &Value, with: &Value) -> Vec<Value> {
    fn paths(json: &Value, path: &str, found: &mut Vec<String>) {
        found.push(path.to_owned());
        match json {
            Value::Array(items) => {
                items
                    .iter()
                    .enumerate()
                    .for_each(|(at, item)| paths(item, &format!("{path}/{at}"), found));
            }
            Value::Object(entries) => {
                entries.iter().for_each(|(key, item)| paths(item, &format!("{path}/{key}"), found));
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    paths(json, "", &mut found);
    let replaced = found.iter().map(|path| {
        let mut mutant = json.clone();
        *mutant.pointer_mut(path).unwrap() = with.clone();
        mutant
    });
    replaced.collect()
}

#[test]
fn no_graph_makes_the_reader_panic() {
    let own = good();
    let others = [
        json!(null),
        json!(0),
        json!(1),
        json!(-1),
        json!(u64::MAX),
        json!(1u64 << 32),
        json!("n1"),
        json!("input"),
        json!([]),
        json!([0, 0]),
        json!([1u64 << 31, 1u64 << 31]),
        json!({}),
    ];
    for with in others {
        for mutant in mutants(&own.json(), &with) {
            if let Ok(network) = Network::parse(&mutant.to_string(), own.tensors.clone()) {
                let _ = lower(&network);
            }
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Network::from_safetensors(&bytes);
        let _ = Network::parse(&String::from_utf8_lossy(&bytes), Tensors::new());
    }
}
