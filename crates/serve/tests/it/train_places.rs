//! Places of a round: whose they are, and what they are given again.

use hushtable_serve::{
    EndpointSpec, Error, Identity, Limit, Refusal, RoundSpec, TrainClient, TrainClientSpec,
    TrainError, TrainRefusal,
};

use crate::common::{Certificates, until};
use crate::train_common::{
    DIM, PlainMemory, SLOTS, SOON, ask, connect, learn, refusal, spec, start, start_with,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_sealed_once_a_round_and_given_again() {
    let (server, seen) = start();
    let client = connect(&server).await;
    let round = client.open_round(RoundSpec::new(2)).await.unwrap();
    let mut first = ask(&client, round, 0, &[7]).await;
    let mut second = ask(&client, round, 1, &[9]).await;
    let sealed = client.rows(round, 0, SOON).await.unwrap();
    for _ in 0..20 {
        assert_eq!(client.rows(round, 0, SOON).await.unwrap(), sealed);
    }
    // At once, before any of them has an answer.
    let calls: Vec<_> = (0..8).map(|_| client.rows(round, 1, SOON)).collect();
    let mut replies = Vec::new();
    for call in futures(calls).await {
        replies.push(call.unwrap());
    }
    assert!(replies.iter().all(|reply| *reply == replies[0]));
    assert_eq!(seen.lock().unwrap().given, [0, 1]);
    assert_eq!(first.reply(&sealed).unwrap().rows[..3], [21.0, 22.0, 23.0]);
    assert_eq!(second.reply(&replies[0]).unwrap().rows[..3], [27.0, 28.0, 29.0]);
    learn(&client, &mut first, 1.0, 1.0).await;
    assert_eq!(client.rows(round, 0, SOON).await.unwrap(), sealed);
    learn(&client, &mut second, 1.0, 1.0).await;
    client.finish(round, false, SOON).await.unwrap();

    // Nothing of it is left in the next round.
    let next = client.open_round(RoundSpec::new(1)).await.unwrap();
    let session = ask(&client, next, 0, &[7]).await;
    let sealed = client.rows(next, 0, SOON).await.unwrap();
    assert_eq!(session.reply(&sealed).unwrap().rows[..3], [20.0, 21.0, 22.0]);
    assert_eq!(seen.lock().unwrap().given, [0, 1, 0]);
    server.stop().unwrap();
}

/// Waits for all of them, side by side.
async fn futures<T>(calls: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut calls: Vec<_> = calls.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<T>> = calls.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        for (call, done) in calls.iter_mut().zip(&mut done) {
            if done.is_none()
                && let std::task::Poll::Ready(end) = call.as_mut().poll(cx)
            {
                *done = Some(end);
            }
        }
        match done.iter().all(Option::is_some) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_are_not_kept_are_made_again_once_a_second() {
    let (memory, seen) = PlainMemory::new();
    let mut spec = spec();
    // Of one user, not of two.
    spec.rows_cache_bytes_max = crate::train_common::terms().shape().reply_bytes();
    let server = start_with(spec, memory);
    let client = connect(&server).await;
    let round = client.open_round(RoundSpec::new(2)).await.unwrap();
    let _first = ask(&client, round, 0, &[7]).await;
    let second = ask(&client, round, 1, &[9]).await;
    let kept = client.rows(round, 0, SOON).await.unwrap();
    let started = std::time::Instant::now();
    let made = client.rows(round, 1, SOON).await.unwrap();
    let again = client.rows(round, 1, SOON).await.unwrap();
    assert!(started.elapsed().as_millis() >= 1000, "{:?}", started.elapsed());
    assert_ne!(made, again);
    for sealed in [made, again] {
        assert_eq!(second.reply(&sealed).unwrap().rows[..3], [27.0, 28.0, 29.0]);
    }
    assert_eq!(client.rows(round, 0, SOON).await.unwrap(), kept);
    assert_eq!(seen.lock().unwrap().given, [0, 1, 1]);
    // One that does not wait is told when, but for what this machine itself takes of the second.
    let mut hurried = TrainClientSpec::new(EndpointSpec::new(server.url(), None));
    hurried.call_max = std::time::Duration::from_millis(200);
    until("it is told when", async || {
        let Ok(hurried) = TrainClient::connect(&hurried).await else { return false };
        match hurried.rows(round, 1, SOON).await {
            Ok(_) | Err(Error::Timeout { .. }) => false,
            Err(Error::Refused {
                refusal: Refusal::Busy { limit: Limit::RowsAgain, .. }, ..
            }) => true,
            Err(other) => panic!("{other}"),
        }
    })
    .await;
    server.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_is_the_certificates_that_took_it() {
    let certificates = Certificates::new();
    let (memory, seen) = PlainMemory::new();
    let mut spec = spec();
    let mut tls = certificates.tls();
    tls.client_ca = Some(certificates.path("ca.pem"));
    spec.network.tls = Some(tls);
    let server = start_with(spec, memory);
    let client = async |pem: &hushtable_serve::certificate::CertificatePem| {
        let mut endpoint = EndpointSpec::new(server.tls_url(), Some(certificates.ca_pem()));
        let (cert_pem, key_pem) = (pem.cert.clone().into_bytes(), pem.key.clone().into_bytes());
        endpoint.identity = Some(Identity { cert_pem, key_pem });
        let spec = TrainClientSpec { trust_announced: true, ..TrainClientSpec::new(endpoint) };
        TrainClient::connect(&spec).await.unwrap()
    };
    // Of one name: it is the certificate that counts.
    let [one, two] = [(); 2].map(|()| certificates.ca.issue_client("alice").unwrap());
    let (alice, again, mallory) = (client(&one).await, client(&one).await, client(&two).await);

    let round = alice.open_round(RoundSpec::new(3)).await.unwrap();
    let mut session = alice.session(round, 0, None).unwrap();
    let sealed = session.request(&[7]).unwrap();
    // A place is nobody's until a request is taken.
    let mut changed = sealed.clone();
    changed[40] ^= 1;
    let refused = mallory.request(round, 0, changed.into()).await;
    assert_eq!(refusal(refused), TrainRefusal::BadMessage { what: "request".into() });
    alice.request(round, 0, sealed.clone().into()).await.unwrap();
    // The same bytes, from another connection of hers, and from another's.
    again.request(round, 0, sealed.clone().into()).await.unwrap();
    let taken = TrainRefusal::AlreadyDone { what: "request".into(), user: 0 };
    assert_eq!(refusal(mallory.request(round, 0, sealed.into()).await), taken);
    // One certificate may have many places: a relay's.
    let mut second = ask(&again, round, 1, &[9]).await;
    let mut other = ask(&mallory, round, 2, &[8]).await;

    let not = |user| TrainRefusal::NotRequested { user };
    assert_eq!(refusal(mallory.rows(round, 0, SOON).await), not(0));
    assert_eq!(refusal(alice.rows(round, 2, SOON).await), not(2));
    let rows = alice.rows(round, 0, SOON).await.unwrap();
    // Not what is kept either.
    assert_eq!(refusal(mallory.rows(round, 0, SOON).await), not(0));
    assert_eq!(again.rows(round, 0, SOON).await.unwrap(), rows);
    let upload = session.upload(&[1.0; SLOTS * DIM], 1.0).unwrap();
    assert_eq!(refusal(mallory.upload(round, 0, upload.clone().into()).await), not(0));
    again.upload(round, 0, upload.clone().into()).await.unwrap();
    alice.upload(round, 0, upload.clone().into()).await.unwrap();
    assert_eq!(refusal(mallory.upload(round, 0, upload.into()).await), not(0));
    learn(&alice, &mut second, 1.0, 1.0).await;
    learn(&mallory, &mut other, 1.0, 1.0).await;
    assert_eq!(alice.finish(round, false, SOON).await.unwrap().uploaded, 3);
    assert_eq!(seen.lock().unwrap().given, [0]);

    // The next round's places are free.
    let next = alice.open_round(RoundSpec::new(1)).await.unwrap();
    ask(&mallory, next, 0, &[7]).await;
    server.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_session_without_a_pin_on_this_machine_either() {
    let (server, _seen) = start();
    let spec = TrainClientSpec::new(EndpointSpec::new(server.url(), None));
    let client = TrainClient::connect(&spec).await.unwrap();
    let round = client.open_round(RoundSpec::new(1)).await.unwrap();
    let refused = client.session(round, 0, None).map(|_| ()).unwrap_err();
    assert!(matches!(refused.of(), Some(TrainError::NoPin { .. })), "{refused}");
    assert!(refused.to_string().contains("pin="), "{refused}");
    let pinned = TrainClientSpec { pin: Some(client.connected().pin()), ..spec };
    TrainClient::connect(&pinned).await.unwrap().session(round, 0, None).unwrap();
    server.stop().unwrap();
}
