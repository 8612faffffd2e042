//! Where a server listens, as its spec has it: `127.0.0.1:4000`, `[::1]:4000` or `localhost:4000`.

use std::net::{SocketAddr, ToSocketAddrs};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// An address, by number or by a name that this machine can look up.
pub(crate) fn one<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    find(&String::deserialize(from)?).map_err(D::Error::custom)
}

/// As [`one`], or none.
pub(crate) fn or_none<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    Option::<String>::deserialize(from)?
        .map(|text| find(&text).map_err(D::Error::custom))
        .transpose()
}

/// The first IPv4 address of a name, since that is where `localhost` is looked for by everyone; else its first.
fn find(text: &str) -> Result<SocketAddr, String> {
    if let Ok(addr) = text.parse() {
        return Ok(addr);
    }
    let wrong = |reason: &str| {
        format!(
            "cannot listen on {text:?}: {reason}. Write IP:PORT or NAME:PORT, as localhost:4000"
        )
    };
    let port = text.rsplit_once(':').map(|(_, port)| port);
    if port.is_none_or(|port| port.parse::<u16>().is_err()) {
        return Err(wrong("it has no port from 0 to 65535"));
    }
    let found: Vec<SocketAddr> =
        text.to_socket_addrs().map_err(|error| wrong(&error.to_string()))?.collect();
    let first = found.iter().find(|addr| addr.is_ipv4()).or(found.first());
    first.copied().ok_or_else(|| wrong("the name has no address"))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use crate::NetworkSpec;

    fn spec(json: &str) -> Result<NetworkSpec, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn names_and_numbers_are_addresses() {
        let found = spec(r#"{"addr": "localhost:7011", "metrics_addr": "localhost:0"}"#).unwrap();
        assert_eq!(found.addr, (Ipv4Addr::LOCALHOST, 7011).into());
        assert_eq!(found.metrics_addr, Some((Ipv4Addr::LOCALHOST, 0).into()));
        let found = spec(r#"{"addr": "[::1]:7012", "metrics_addr": null}"#).unwrap();
        assert_eq!(found.addr.to_string(), "[::1]:7012");
        assert_eq!(found.metrics_addr, None);
    }

    #[test]
    fn what_is_no_address_says_what_one_is() {
        for (text, why) in [
            ("localhost", "no port from 0 to 65535"),
            ("localhost:70000", "no port from 0 to 65535"),
            ("no-such-host.invalid:4000", "cannot listen on \"no-such-host.invalid:4000\""),
        ] {
            for field in ["addr", "metrics_addr"] {
                let error = spec(&format!(r#"{{"{field}": "{text}"}}"#)).unwrap_err();
                assert!(error.contains(why) && error.contains("localhost:4000"), "{error}");
            }
        }
    }
}
