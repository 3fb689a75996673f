package telemetry

// Promise is what became of the goal that a request was admitted with: its first
// token was to come within Record.Promised.
type Promise uint8

// What may become of a promise.
const (
	PromiseNone    Promise = iota // none was made: refused on arrival, or no goal
	PromiseOpen                   // no first token, and its goal has not passed; an ended one's client left before, say
	PromiseKept                   // the first token came in time
	PromiseBroken                 // it came later, or had not come when its goal had passed
	PromiseRevoked                // refused while it waited, or demoted to a class without a goal
	promiseCount
)

var promiseNames = [promiseCount]string{"", "open", "kept", "broken", "revoked"}

// String returns the stable name; it is "" where nothing was promised.
func (p Promise) String() string { return promiseNames[p] }

// Promise returns what has become by the instant now of what r was promised.
func (r *Record) Promise(now int64) Promise {
	goal := int64(r.Promised)
	if goal <= 0 {
		return PromiseNone
	}
	delay, came := r.firstTokenBy(now)
	switch {
	case r.demotedLater():
		return PromiseRevoked
	case delay > goal:
		return PromiseBroken // told too late, if it was told at all
	case came:
		return PromiseKept
	case r.revoked():
		return PromiseRevoked
	}
	return PromiseOpen
}

// revoked tells that admission refused r after it had taken it in. A deadline that
// is over is the client's own.
func (r *Record) revoked() bool {
	return r.Accepted != 0 && r.Admitted == 0 && r.Refused != "" && r.Outcome != DeadlineExceeded
}

// demotedLater tells that r was promised a goal, and runs in a class without one.
func (r *Record) demotedLater() bool {
	return r.Promised > 0 && r.Admitted != 0 && r.FirstTokenGoal == 0
}
