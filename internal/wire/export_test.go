package wire

import "io"

// SayHelloAndDispatch is a peer that asks for one generation with a wide
// window and reads nothing.
func SayHelloAndDispatch(w io.Writer) error {
	b := appendJSONFrame(nil, frameHello, &hello{Protocol: protocolVersion, ClockNs: Monotonic()})
	start := len(b)
	m := dispatch{Sequence: 1, Window: 1 << 20, Generation: Generation{ID: "x", Options: Options{N: 1}, Prompt: &Prompt{Tokens: []int32{1}, Room: 1000}}}
	b = endFrame(append(beginFrame(b, frameDispatch), dispatchPayload(&m)...), start)
	_, err := w.Write(b)
	return err
}
