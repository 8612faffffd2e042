//! One call that needs no session.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use super::route::Route;
use super::{
    Ask, Bell, Called, Cause, Connect, Limits, Machine, Operation, Place, Protocol, Round, RoundOf,
    Script, Shared, Tally, Tried,
};

/// Makes `call` to the one server at `place`. Where that is busy, drains, or was restarted since the last call, it
/// is made again, where it may be ([`Protocol::is_repeatable`]); `again` says after which pause it is made again
/// for other reasons, as [`Ask::again`]. `random` spreads retries.
pub fn lone<P, A, E>(
    place: Place,
    call: P::Call,
    limits: Limits,
    again: A,
    random: u64,
) -> impl Machine<E, Protocol = P, Output = Called<P::Reply>>
where
    P: Protocol,
    A: Fn(Cause<'_, P>, u32, u64) -> Option<Duration> + Send,
    E: Send,
{
    let scheme = Lone { place, limits, protocol: PhantomData };
    let shared = Shared::new(scheme, (), (Route::default(), [None; 3]), Bell::new(|| {}));
    Operation::new(&shared, LoneAsk { place, call, limits, again }, random)
}

struct Lone<P> {
    place: Place,
    limits: Limits,
    protocol: PhantomData<fn() -> P>,
}

struct LoneAsk<P: Protocol, A> {
    place: Place,
    call: P::Call,
    limits: Limits,
    again: A,
}

struct LoneScript<P: Protocol> {
    place: Place,
    call: Option<P::Call>,
}

/// There is nothing to open.
struct Nothing<P>(PhantomData<fn() -> P>);

impl<P: Protocol> Connect for Lone<P> {
    type Protocol = P;
    type Session = ();
    type Opening = Nothing<P>;

    fn opening(&self, _: Option<&Arc<()>>) -> Nothing<P> {
        Nothing(PhantomData)
    }

    fn first(&self) -> Place {
        self.place
    }

    fn servers(&self) -> [usize; 3] {
        Place::ALL.map(|place| usize::from(place == self.place))
    }

    fn limits(&self) -> (Duration, Duration) {
        (self.limits.call, self.limits.whole)
    }

    fn is_misfit(&self, _: &P::Failure) -> bool {
        false
    }
}

impl<P: Protocol> Script for Nothing<P> {
    type Protocol = P;
    type Output = ();

    fn next(&mut self, _: Vec<P::Reply>, _: Tally) -> RoundOf<P, ()> {
        Ok(Round::Done(()))
    }
}

impl<P, A> Ask<Lone<P>> for LoneAsk<P, A>
where
    P: Protocol,
    A: Fn(Cause<'_, P>, u32, u64) -> Option<Duration> + Send,
{
    type Output = Called<P::Reply>;
    type Script = LoneScript<P>;

    fn script(&self, _: &Arc<()>, _: u64) -> Result<LoneScript<P>, P::Failure> {
        Ok(LoneScript { place: self.place, call: Some(self.call.clone()) })
    }

    fn limits(&self) -> Option<Limits> {
        Some(self.limits)
    }

    fn again(&self, cause: Cause<'_, P>, tried: Tried, random: u64) -> Option<Duration> {
        (self.again)(cause, tried.times, random)
    }
}

impl<P: Protocol> Script for LoneScript<P> {
    type Protocol = P;
    type Output = Called<P::Reply>;

    fn next(&mut self, replies: Vec<P::Reply>, tally: Tally) -> RoundOf<P, Called<P::Reply>> {
        if let Some(call) = self.call.take() {
            return Ok(Round::Ask(vec![(self.place, call)]));
        }
        Ok(match replies.into_iter().next() {
            Some(reply) => Round::Done(Called { reply, retries: tally.retries }),
            None => Round::Pause(self.place, None),
        })
    }
}
