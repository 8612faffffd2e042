//! What one user may do to a row: uploads at the ends of what numbers can be.

use super::*;
use crate::aggregate::{ClipSpec, VALUE_MAX, WEIGHT_MAX};
use crate::wire::RefusedReason;

/// The gradient of an attack that cancelled other users' updates.
const HUGE: f32 = 3e38;
/// Row that all ask for.
const ROW: u32 = 7;
/// Room for what aggregates keep of a row, which rows of [`DIM`] do not leave.
const SHORT_DIM: usize = 40;
/// What its numbers start at.
const START: f32 = 21.0;

fn aggregates() -> Vec<AggregateSpec> {
    let text = r#"[{ "name": "fed_avg", "learning_rate": 1.0 },
        { "name": "fed_adam", "learning_rate": 0.1 }, { "name": "fed_adagrad" },
        { "name": "dp_fed_avg", "clip": 1, "noise_multiplier": 0, "users": 3 },
        { "name": "eana", "clip": 1, "noise_multiplier": 0 },
        { "name": "lazy_dp", "clip": 1, "noise_multiplier": 0, "users": 3 }]"#;
    serde_json::from_str(text).expect("JSON")
}

/// The row's first number after rounds of two honest users (who take 0.1 of it each round) and one who
/// sends what `sends` says in the first of them; before, after that round, and after ten without.
fn attacked(
    aggregate: AggregateSpec,
    clip: Option<ClipSpec>,
    sends: Option<(f32, f32)>,
) -> [f32; 3] {
    let at = folder();
    let mut spec = spec(f64::INFINITY);
    (spec.aggregate, spec.clip, spec.dim) = (aggregate, clip, SHORT_DIM);
    let counter = at.path().join("counter");
    let mut fill = |_, rows: &mut [f32]| {
        rows.fill(START);
        Ok(())
    };
    let folder = at.path().join("t");
    let mut controller =
        Controller::create(&folder, &key(), &counter, &spec, &mut fill, &mut |_, _| {}).unwrap();
    let mut round = |sends: Option<(f32, f32)>| {
        let mut ids = [DUMMY; 3 * 5];
        (ids[0], ids[5], ids[10]) = (ROW, ROW, ROW);
        controller.begin(3, &ids).unwrap();
        for user in 0..2 {
            controller.add(user, &[0.1; 5 * SHORT_DIM], 5.0).unwrap();
        }
        if let Some((gradient, weight)) = sends {
            controller.add(2, &[gradient; 5 * SHORT_DIM], weight).unwrap();
        }
        controller.commit().unwrap();
        let mut all = Vec::new();
        let mut sink = |_, rows: &[f32]| {
            all.extend_from_slice(rows);
            Ok(())
        };
        controller.export(&mut sink, &mut |_, _| {}).unwrap();
        all[ROW as usize * SHORT_DIM]
    };
    let first = round(sends);
    // Those with momentum take some rounds to turn round.
    let later = (0..10).map(|_| round(None)).last().unwrap();
    [START, first, later]
}

#[test]
fn one_user_cannot_undo_a_row() {
    let clip = ClipSpec { norm: 2.0, value: 0.5, weight: 10.0 };
    for aggregate in aggregates() {
        let [before, honest, later] = attacked(aggregate, Some(clip), None);
        let (step, next) = (before - honest, honest - later);
        assert!(step > 0.01 && next > 0.01, "{aggregate:?}: {step}, {next}");
        for (gradient, weight) in
            [(HUGE, 1.0), (HUGE, 20.0), (-HUGE, 1.0), (-HUGE, 20.0), (f32::MAX, WEIGHT_MAX)]
        {
            let [_, first, second] = attacked(aggregate, Some(clip), Some((gradient, weight)));
            let case = format!("{aggregate:?}, {gradient} at {weight}: {first}, then {second}");
            // It counts as much as its norm and weight may, no more: the bound of one number, or,
            // for the adaptive ones, a step in either direction.
            assert!((first - honest).abs() <= 0.75, "{case}; honest {honest}");
            // The honest are heard from then on: the row is not frozen, nor carried off.
            assert!(first - second > 0.3 * next, "{case}; honest {next}");
        }
    }
}

#[test]
fn an_upload_that_is_not_clipped_still_makes_no_sum_infinite() {
    for aggregate in aggregates() {
        for (gradient, weight) in [(HUGE, 1.0), (HUGE, 20.0), (f32::MIN, WEIGHT_MAX)] {
            let [before, first, second] = attacked(aggregate, None, Some((gradient, weight)));
            let case = format!("{aggregate:?}, {gradient} at {weight}: {first}, then {second}");
            assert!(first.is_finite() && second.is_finite(), "{case}");
            // The row is updated: a sum that is infinite leaves it as it was.
            assert!(first != before, "{case}");
            assert!(first.abs() <= 2.0 * VALUE_MAX, "{case}");
        }
    }
}

#[test]
fn honest_uploads_are_not_touched_to_the_bit() {
    for aggregate in aggregates() {
        let clip = ClipSpec { norm: 12.0, value: 1.0, weight: 5.0 };
        let sends = Some((0.97, 5.0));
        assert_eq!(attacked(aggregate, Some(clip), sends), attacked(aggregate, None, sends));
    }
}

#[test]
fn what_is_dropped_takes_nothing_of_the_norm() {
    // The attacker of its own norm: padding of any size leaves the one row that counts as it is.
    let clip = ClipSpec { norm: 4.0, value: VALUE_MAX, weight: 1.0 };
    let at = folder();
    let mut spec = spec(f64::INFINITY);
    spec.clip = Some(clip);
    let mut controller = create(at.path(), &spec);
    controller.begin(1, &[ROW, DUMMY, DUMMY, DUMMY, DUMMY]).unwrap();
    let mut gradients = [1e9; 5 * DIM];
    gradients[..DIM].fill(0.25);
    controller.add(0, &gradients, 1.0).unwrap();
    controller.commit().unwrap();
    assert_eq!(table(&mut controller)[ROW as usize * DIM], value(ROW.into(), 0) - 0.25);
}

#[test]
fn a_refused_upload_is_reported_and_may_come_again() {
    let at = folder();
    let mut controller = create(at.path(), &spec(f64::INFINITY));
    let mut ids = [DUMMY; 3 * 5];
    (ids[0], ids[5], ids[10]) = (ROW, ROW, ROWS as u32);
    assert_eq!(controller.begin(3, &ids).unwrap().refused, [2]);
    controller.add(0, &[f32::NAN; 5 * DIM], 1.0).unwrap_err();
    controller.add(0, &[1.0; 5 * DIM], -1.0).unwrap_err();
    controller.add(0, &[f32::NAN; 5 * DIM], 1.0).unwrap_err();
    controller.add(1, &[f32::INFINITY; 5 * DIM], 1.0).unwrap_err();
    controller.add(1, &[1.0; 5 * DIM], 1.0).unwrap();
    let report = controller.commit().unwrap();
    let refused =
        [(0, RefusedReason::Weight), (1, RefusedReason::NotFinite), (2, RefusedReason::Ids)];
    assert_eq!((report.uploaded, &report.refused[..]), (1, &refused[..]));
    assert_eq!(table(&mut controller)[ROW as usize * DIM], value(ROW.into(), 0) - 1.0);
}

#[test]
fn a_file_without_a_clip_reads_and_writes_as_before() {
    let bare = spec(1.0);
    let text = String::from_utf8(bare.to_text().unwrap()).unwrap();
    assert!(!text.contains("clip"), "{text}");
    let clipped = ControllerSpec { clip: Some(ClipSpec::default()), ..bare };
    let text = String::from_utf8(clipped.to_text().unwrap()).unwrap();
    assert_eq!(serde_json::from_str::<ControllerSpec>(&text).unwrap(), clipped);
    for (clip, setting) in [
        (ClipSpec { norm: 0.0, ..ClipSpec::default() }, "clip.norm"),
        (ClipSpec { norm: f32::NAN, ..ClipSpec::default() }, "clip.norm"),
        (ClipSpec { value: 2.0 * VALUE_MAX, ..ClipSpec::default() }, "clip.value"),
        (ClipSpec { value: -1.0, ..ClipSpec::default() }, "clip.value"),
        (ClipSpec { weight: 2.0 * WEIGHT_MAX, ..ClipSpec::default() }, "clip.weight"),
        (ClipSpec { weight: f32::INFINITY, ..ClipSpec::default() }, "clip.weight"),
    ] {
        let error = ControllerSpec { clip: Some(clip), ..spec(1.0) }.geometry().unwrap_err();
        assert!(error.to_string().contains(setting), "{error}");
    }
}
