package wire

import (
	"encoding/json"
	"time"
)

// protocolVersion changes with every change of a frame.
const protocolVersion = 17

// clockSlack is how far the peer's clock may lie outside the time of the round
// trip.
const clockSlack = time.Millisecond

// hello is the first frame each way.
type hello struct {
	Protocol int    `json:"protocol"`
	Version  string `json:"version"`
	// ClockNs is CLOCK_MONOTONIC when the hello was made.
	ClockNs int64 `json:"clock_ns"`
	// State is the engine's, with its model; the gateway's hello has none.
	State *State `json:"state,omitempty"`
}

func appendJSONFrame(b []byte, kind byte, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("wire: a frame does not marshal: " + err.Error())
	}
	start := len(b)
	return endFrame(append(beginFrame(b, kind), text...), start)
}

// readHello reads the peer's hello and checks its protocol version.
func readHello(f *frameReader) (*hello, error) {
	kind, payload, err := f.next()
	if err != nil {
		return nil, err
	}
	switch kind {
	case frameHello:
	case frameRefuse:
		return nil, refusal(payload)
	default:
		return nil, Errorf(Protocol, "the first frame has type %d and is not a hello", kind)
	}
	var h hello
	if err := json.Unmarshal(payload, &h); err != nil {
		return nil, Errorf(Protocol, "the hello is not readable: %v", err)
	}
	if h.Protocol != protocolVersion {
		return nil, Errorf(Protocol, "the peer %q speaks protocol %d and this process %d: run gateway and engine from the same binary", h.Version, h.Protocol, protocolVersion)
	}
	return &h, nil
}

// refusal is the error in a refuse frame.
func refusal(payload []byte) *Error {
	d := &decoder{rest: payload}
	e := d.error()
	if err := d.finish(); err != nil {
		return err
	}
	if e == nil {
		return Errorf(Protocol, "a refusal without a reason")
	}
	return e
}

// checkClock refuses a peer with another monotonic clock: the peer read its
// clock after the local instant sent and before received, so the value must
// lie between them.
func checkClock(sent, peer, received int64) *Error {
	skew := int64(0)
	switch {
	case peer < sent:
		skew = peer - sent
	case peer > received:
		skew = peer - received
	}
	if duration(skew).Abs() <= clockSlack {
		return nil
	}
	return Errorf(Protocol, "the engine's monotonic clock is off by %v: gateway and engine must run on one machine and in one time namespace", duration(skew))
}
