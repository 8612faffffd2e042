use super::*;

fn bytes<const N: usize>(start: &[u8]) -> [u8; N] {
    let mut all = [0; N];
    all[..start.len()].copy_from_slice(start);
    all
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

/// draft-irtf-cfrg-aegis-aead, appendix A.4: AEGIS-256 test vectors 1 to 5, tags of 128 bits.
#[test]
fn the_drafts_vectors_hold() {
    let counting = |from: u8, count: u8| (from..from + count).collect::<Vec<_>>();
    let vectors = [
        (
            vec![],
            vec![0; 16],
            "754fc3d8c973246dcc6d741412a4b236",
            "3fe91994768b332ed7f570a19ec5896e",
        ),
        (vec![], vec![], "", "e3def978a0f054afd1e761d7553afba3"),
        (
            counting(0, 8),
            counting(0, 32),
            "f373079ed84b2709faee373584585d60accd191db310ef5d8b11833df9dec711",
            "8d86f91ee606e9ff26a01b64ccbdd91d",
        ),
        (
            counting(0, 8),
            counting(0, 14),
            "f373079ed84b2709faee37358458",
            "c60b9c2d33ceb058f96e6dd03c215652",
        ),
        (
            counting(0, 42),
            counting(16, 40),
            "57754a7d09963e7c787583a2e7b859bb24fa1e04d49fd550b2511a358e3bca252a9b1b8b30cc4a67",
            "ab8a7d53fd0e98d727accca94925e128",
        ),
    ];
    let key = Key::from_bytes(bytes(&[0x10, 0x01]));
    let nonce = bytes(&[0x10, 0x00, 0x02]);
    for (ad, text, sealed, tag) in vectors {
        let mut working = text.clone();
        assert_eq!(key.seal_in_place(&nonce, &ad, &mut working).to_vec(), hex(tag));
        assert_eq!(working, hex(sealed));
        let tag = hex(tag).try_into().unwrap();
        assert_eq!(key.open_in_place(&nonce, &ad, &mut working, &tag), Ok(()));
        assert_eq!(working, text);
    }
}

/// The draft's vectors 6 to 9: key and nonce exchanged, text, associated data and tag off by one.
#[test]
fn the_drafts_forgeries_are_refused() {
    let sealed = hex("f373079ed84b2709faee37358458");
    let tag: [u8; 16] = hex("c60b9c2d33ceb058f96e6dd03c215652").try_into().unwrap();
    let ad: Vec<u8> = (0..8).collect();
    let (key, nonce) = (bytes(&[0x10, 0x01]), bytes(&[0x10, 0x00, 0x02]));
    let open = |key, nonce, ad: &[u8], sealed: &[u8], tag| {
        Key::from_bytes(key).open_in_place(&nonce, ad, &mut sealed.to_vec(), &tag)
    };
    assert_eq!(open(key, nonce, &ad, &sealed, tag), Ok(()));
    assert_eq!(open(nonce, key, &ad, &sealed, tag), Err(Forged));
    for bit in 0..8 * sealed.len() {
        let mut other = sealed.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(open(key, nonce, &ad, &other, tag), Err(Forged));
    }
    for bit in 0..128 {
        let mut other = tag;
        other[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(open(key, nonce, &ad, &sealed, other), Err(Forged));
    }
    let mut other = ad.clone();
    other[7] += 1;
    assert_eq!(open(key, nonce, &other, &sealed, tag), Err(Forged));
    assert_eq!(open(key, nonce, &ad, &sealed[..13], tag), Err(Forged));
}

#[test]
fn derived_keys_differ_by_context_and_by_memory() {
    let key = Key::random().unwrap();
    let tag = |key: Key| key.seal_in_place(&[0; 32], b"", &mut [0; 64]);
    assert_eq!(tag(key.derive("vtree")), tag(key.derive("vtree")));
    assert_ne!(tag(key.derive("vtree")), tag(key.derive("buffer")));
    assert_ne!(tag(key.fresh("vtree").unwrap()), tag(key.fresh("vtree").unwrap()));
    assert_ne!(tag(Key::random().unwrap()), tag(Key::random().unwrap()));
}

#[test]
fn nonces_of_groups_and_versions_differ() {
    let mut all = std::collections::HashSet::new();
    for group in [0, 1, 255, 256, 1 << 32, u64::MAX] {
        for counter in [0, 1, 255, 256, 1 << 32, u64::MAX] {
            assert!(all.insert(group_nonce(group, counter)));
        }
    }
}
