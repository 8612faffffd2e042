//! Loads a server and prints what it measured.
//!
//! ```text
//! load_server URL CA.pem CLIENTS KEYS_PER_REQUEST SECONDS [PARTNER_URL]
//! ```

use std::time::Duration;

use hushtable_serve::EndpointSpec;
use hushtable_serve::load::LoadSpec;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [url, ca, clients, keys, seconds, partner @ ..] = args.as_slice() else {
        return Err("usage: load_server URL CA.pem CLIENTS KEYS SECONDS [PARTNER_URL]".into());
    };
    let ca = std::fs::read(ca).ok();
    let spec = LoadSpec {
        clients: clients.parse()?,
        keys_per_request: keys.parse()?,
        duration: Duration::from_secs(seconds.parse()?),
        partner: partner.first().map(|url| EndpointSpec::new(url, ca.clone())),
        ..LoadSpec::new(EndpointSpec::new(url, ca))
    };
    println!("{:#?}", spec.run_blocking()?);
    Ok(())
}
