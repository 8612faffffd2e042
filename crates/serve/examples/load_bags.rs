//! Loads a left and a right server with whole inferences and prints what it measured.
//!
//! ```text
//! load_bags LEFT_URL RIGHT_URL CA.pem CLIENTS SECONDS
//! ```

use std::time::Duration;

use hushtable_serve::EndpointSpec;
use hushtable_serve::load::BagLoadSpec;

// As the Python package's module has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [left, right, ca, clients, seconds] = args.as_slice() else {
        return Err("usage: load_bags LEFT_URL RIGHT_URL CA.pem CLIENTS SECONDS".into());
    };
    let ca = std::fs::read(ca).ok();
    let spec = BagLoadSpec {
        clients: clients.parse()?,
        duration: Duration::from_secs(seconds.parse()?),
        ..BagLoadSpec::new(EndpointSpec::new(left, ca.clone()), EndpointSpec::new(right, ca))
    };
    println!("{:#?}", spec.run_blocking()?);
    Ok(())
}
