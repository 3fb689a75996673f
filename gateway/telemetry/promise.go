package telemetry

// Promise is what became of the goal that a request was admitted with: admission
// took it in, so its first token was to come within FirstTokenGoal.
type Promise uint8

// What may become of a promise.
const (
	PromiseNone    Promise = iota // none was made: refused on arrival, or no goal
	PromiseOpen                   // no first token, and its goal has not passed; an ended one's client left before, say
	PromiseKept                   // the first token came in time
	PromiseBroken                 // it came later, or had not come when its goal had passed
	PromiseRevoked                // refused while it waited
	promiseCount
)

var promiseNames = [promiseCount]string{"", "open", "kept", "broken", "revoked"}

// String returns the stable name; it is "" where nothing was promised.
func (p Promise) String() string { return promiseNames[p] }

// Promise returns what has become by the instant now of what r was promised. A
// request that was demoted to a class without a goal has no promise.
func (r *Record) Promise(now int64) Promise {
	goal := int64(r.FirstTokenGoal)
	if r.Accepted == 0 || goal <= 0 {
		return PromiseNone
	}
	delay, came := r.firstTokenBy(now)
	switch {
	case !came && r.revoked() && (r.Outcome != QueueTimeout || delay <= goal):
		return PromiseRevoked
	case delay > goal:
		return PromiseBroken
	case came:
		return PromiseKept
	}
	return PromiseOpen
}

// revoked tells that admission refused r after it had taken it in. A deadline that
// is over is the client's own.
func (r *Record) revoked() bool {
	return r.Accepted != 0 && r.Admitted == 0 && r.Refused != "" && r.Outcome != DeadlineExceeded
}
