package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/forebay-io/forebay/cache/hitmap"
	"github.com/forebay-io/forebay/internal/cost"
)

// same compares values of the contract; NaN equals NaN, and an empty list none.
var same = cmp.Options{cmpopts.EquateNaNs(), cmpopts.EquateEmpty(), cmp.AllowUnexported(sequenceEvent{})}

func sampleOptions() Options {
	return Options{MaxTokens: 7, N: 2, Temperature: .5, TopK: 40, TopP: .9, MinP: .1, Seed: math.MaxUint64, RepetitionPenalty: 1.1,
		PresencePenalty: -1, FrequencyPenalty: 2, LogitBias: []LogitBias{{Token: 3, Bias: -100}}, Stop: []string{"a", "", "ü"},
		TypicalP: .3, XTCProbability: .5, XTCThreshold: .1, TopNSigma: 1, MirostatTau: 5, MirostatEta: .2, RepeatLast: 64,
		DRY:           DRY{Multiplier: .8, Base: 1.75, Length: 2, Last: 9, Breakers: []string{"\n", ""}},
		AllowedTokens: []int32{4, -1}, BadWords: []string{"bad", ""}, StopTokens: []int32{6}, KeepStop: true, MinTokens: 8,
		IgnoreEOS: true, Echo: true, Logprobs: true, TopLogprobs: 5, PromptLogprobs: true, PromptTop: 6, Embed: true, Split: true, Tools: []byte(`[{}]`), NoCalls: true, CallsMax: 3, ReasoningMax: 4,
		Grammar: &Grammar{Kind: GrammarSchema, Text: "{}", Strict: true, Compact: true, Param: "p", Calls: &HeldCalls{Tools: []byte(`[]`), Required: true, Most: 2}}}
}

func samplePrompt() *Prompt {
	return &Prompt{Tokens: []int32{0, 1, math.MaxInt32}, Text: "text", Room: 7, CachedTokens: 1, BlockHashes: []uint64{1, math.MaxUint64}, Calls: 5, Unenforced: []string{"/a", ""}, Render: 3, Tokenize: 4, Compile: 5}
}

func sampleEvents() []Event {
	nan := float32(math.NaN())
	return []Event{
		{Choice: 0, Text: "héllo", TokenCount: 1, Cached: 1 << 20, PromptLogprobs: []TokenLogprob{{ID: 1, Logprob: nan, Rank: 300}},
			Logprobs: []TokenLogprob{{ID: 9, Bytes: []byte{0xff}, Logprob: -1, Top: []TopLogprob{{ID: 2, Bytes: []byte("x"), Logprob: -2}}}}},
		{Choice: 1, TokenCount: 1, Text: "x", Pieces: []Piece{{Kind: PieceReasoning, Text: "ü"}, {Kind: PieceCall, ID: "i", Name: "n"}, {Kind: PieceArguments, Text: "{}"}, {Kind: PieceCallEnd}, {Text: "y"}}},
		{Choice: 1, TokenCount: 2, Text: " end", Finish: FinishCalls},
		{Choice: 1, Embedding: []float32{0.5, -1e-9}, Finish: FinishStop, StopText: "END"},
		{End: &End{Err: &Error{Kind: NonFinite, Param: "p", Message: "m", RetryAfter: 5}, Usage: Usage{7, 2, 3, 4, 5, 6, PinMemory}, Timings: sampleTimings()}},
	}
}

func sampleTimings() Timings {
	t := Timings{Arrived: 1, Received: 2, Scheduled: 3, FirstToken: 4, Finished: 5, Steps: 6, PrefillSteps: 7, DecodeSteps: 8, PrefillChunks: 9, PrefillTokens: 10, Preempted: 11}
	for i := range PartCount {
		t.BeforeFirst[i], t.AfterFirst[i] = 100+time.Duration(i), 1<<40+time.Duration(i)
	}
	t.Slow[0] = SlowStep{Step: math.MaxUint64, Duration: 12, OthersPrefill: 13, Largest: math.MaxUint64}
	t.Slow[1].Step = 1
	return t
}

func sampleRecords() []StepRecord {
	r := StepRecord{Step: 1, Began: -5, Ended: 1 << 50, Gap: 3, GivenUp: 8, Idle: 4, DecodeRows: 5, PrefillTokens: 6, PagesUsed: 7,
		Members:     []StepMember{{Serial: math.MaxUint64, Tokens: 1, Own: 9, Level: 2, Decode: true}, {Serial: 1, Tokens: 300, Own: 1 << 40}},
		MembersMore: 8, LeftOut: []StepLeftOut{{Serial: 4, Why: PartPages}, {Serial: 3, Why: PartParked}}, LeftOutMore: 9,
		Preempted: []uint64{0, math.MaxUint64, 7}, PreemptedMore: 10,
		Predicted: 11, CPU: 1 << 41, Lost: []LostTime{{Begin: -7, End: 5, By: [LostCauseCount]time.Duration{1, 2, 3, 4, 2}}, {Begin: 1, End: 1}}}
	for i := range r.Kernels {
		r.Kernels[i] = KernelTime{Count: uint32(i), Total: time.Duration(i) << 30, Max: time.Duration(i)}
	}
	return []StepRecord{r, {}}
}

func appendSampleRecords(b []byte, all []StepRecord) []byte {
	b = appendSize(b, len(all))
	for i := range all {
		b = appendRecord(b, &all[i])
	}
	return b
}

func sampleTrace() *traceReply {
	return &traceReply{Trace: 3, Result: LaunchTrace{Steps: 2, Missing: 1, Launches: []Launch{
		{Step: 7, Layer: -1, Class: KernelEmbed, Begin: 100, End: 200}, {Step: 7, Layer: 0, Class: KernelQKV, Begin: 200, End: 200},
		{Step: 8, Layer: 29, Class: KernelFromDevice, Begin: 150, End: math.MaxInt64}}}}
}

func sampleState() *State {
	return &State{
		Err: Errorf(Draining, "stopping"), Step: 1, At: 2,
		Pages:   Pages{PagesTotal: 3, PagesUsed: 4, PagesCached: 5, PagesFree: 6, PagesPinned: 38},
		States:  States{48, 49, 50, 55, 51, 52, 53, 54},
		Load:    Load{Running: 7, Waiting: 8, Paused: 9, Sequences: 19, ShortPrefill: 20, LongPrefill: 21},
		Busiest: "make (2 processes, 1.9 processors)", GPU: GPUState{40, 41, 42, 43, 44, 45, 46},
		Pace: Pace{Room: cost.Room{Budget: 24, TokensMin: 25, TokensMax: 22}, StepPrefillTokens: 12, StepDecodeTokens: 13, StepDuration: 14, StepPredicted: 23, RatioMedian: .9, RatioHigh: 1.5,
			Cost: cost.Cost{Base: 24, PrefillToken: 2.5, PrefillContext: 1e-9, DecodeRow: 26, DecodeContext: 27}},
		Totals: Totals{PrefillTokens: 15, CachedTokens: 16, DecodeTokens: 17, Preempted: 10, NonFinite: 11, GrammarsCompiled: 28, GrammarsFound: 29, GrammarsRefused: 30, GrammarsFailed: 31, PinsYielded: 39, Disk: DiskState{32, 33, 34, 35, 36, 37}},
		Blocks: hitmap.Journal{Before: 18, Changes: []hitmap.Change{{Hash: math.MaxUint64, Evicted: true}, {Hash: 1}}},
	}
}

func appendSampleStep(b []byte) []byte {
	b = appendSampleRecords(appendState(appendBool(b, true), sampleState()), sampleRecords())
	previous := uint64(0)
	for _, id := range []uint64{3, 9} {
		for _, e := range sampleEvents() {
			b = appendEvent(b, id-previous, &e)
			previous = id
		}
	}
	return b
}

func dispatchPayload(m *dispatch) []byte {
	return appendDispatch(binary.AppendUvarint(nil, m.Sequence), m.Window, &m.Generation)
}

// samples are payloads of every kind that is not JSON.
func samples() map[byte][]byte {
	text := "text"
	request := &Request{ID: "id", Messages: []byte(`[ {"role": "user"} ]`), Tools: []byte(`[]`), TemplateOptions: []byte(`{}`), Think: ThinkOff, Effort: "low", NoCalls: true,
		Text: &text, Document: &text, Tokens: []int32{-1, 5}, Salt: "salt", Continue: true, Grammar: &Grammar{Kind: GrammarObject, Param: "q"}}
	return map[byte][]byte{
		frameStep: appendSampleStep(nil),
		frameDispatch: dispatchPayload(&dispatch{Sequence: 1, Window: 2, Generation: Generation{ID: "id", Serial: math.MaxUint64, Prompt: samplePrompt(),
			Options: sampleOptions(), Salt: "s", Class: "c", Level: 2, Key: math.MinInt64, Long: true, TokenGoal: 28, Pin: Pin{true, 29, 30}, Trace: TraceContext{TraceID: [16]byte{1}, SpanID: [8]byte{2}, Flags: 1, State: "a=b"}}}),
		framePrepare:     append([]byte{4}, appendRequest(nil, request)...),
		framePromptReply: appendPromptReply(nil, &promptReply{Prepare: 4, Prompt: samplePrompt()})[frameHead:],
		frameTrace:       {5, 6, 7},
		frameTraceReply:  appendTraceReply(nil, sampleTrace())[frameHead:],
		frameHoldings:    {5, 6},
		frameHoldingsReply: appendHoldingsReply(nil, &holdingsReply{Asked: 3, Result: Holdings{
			Prefixes: []HeldPrefix{{Salt: "s", Hash: math.MaxUint64, Tokens: 1, Uses: 2, Pinned: true}}, Salts: []SaltPages{{Salt: "t", Used: 3, Cached: 4, Pinned: 5}}, Pins: []HeldPin{{Salt: "s", Hash: 1, Tokens: 6, Left: 7}}}})[frameHead:],
		frameRefuse: appendError(nil, &Error{Kind: Overloaded, Param: "p", Message: "m", RetryAfter: 3}),
		frameAck:    binary.AppendUvarint(binary.AppendUvarint(nil, 5), 6),
	}
}

// recode decodes a payload of some kind and encodes it again.
func recode(kind byte, payload []byte) (decoded any, encoded []byte, err *Error) {
	d := &decoder{rest: payload}
	switch kind {
	case frameStep:
		s := new(stepFrame)
		if err := s.decode(payload, 1<<12); err != nil {
			return nil, nil, err
		}
		b := appendBool(nil, s.State != nil)
		if s.State != nil {
			b = appendSampleRecords(appendState(b, s.State), s.Records)
		}
		previous := uint64(0)
		for i := range s.Events {
			b = appendEvent(b, s.Events[i].Sequence-previous, &s.Events[i].Event)
			previous = s.Events[i].Sequence
		}
		return []any{s.State, s.Records, s.Events}, b, nil
	case frameDispatch:
		m := d.dispatch()
		if d.finish() == nil {
			encoded = dispatchPayload(&m)
		}
		decoded = m
	case framePrepare:
		id, r := d.uint(), d.request()
		decoded, encoded = []any{id, r}, appendRequest(binary.AppendUvarint(nil, id), r)
	case framePromptReply:
		r := d.promptReply()
		if d.finish() == nil {
			encoded = appendPromptReply(nil, &r)[frameHead:]
		}
		decoded = r
	case frameTrace:
		id, steps, limit := d.uint(), d.size(), d.duration()
		decoded, encoded = []any{id, steps, limit}, appendDuration(appendSize(binary.AppendUvarint(nil, id), steps), limit)
	case frameTraceReply:
		r := d.traceReply()
		if d.finish() == nil {
			encoded = appendTraceReply(nil, &r)[frameHead:]
		}
		decoded = r
	case frameHoldings:
		id, most := d.uint(), d.size()
		decoded, encoded = []any{id, most}, appendSize(binary.AppendUvarint(nil, id), most)
	case frameHoldingsReply:
		r := d.holdingsReply()
		if d.finish() == nil {
			encoded = appendHoldingsReply(nil, &r)[frameHead:]
		}
		decoded = r
	case frameRefuse:
		e := d.error()
		decoded, encoded = e, appendError(nil, e)
	default:
		id, taken := d.uint(), d.uint()
		decoded, encoded = []any{id, taken}, binary.AppendUvarint(binary.AppendUvarint(nil, id), taken)
	}
	return decoded, encoded, d.finish()
}

func TestCodecIsIdentity(t *testing.T) {
	for kind, payload := range samples() {
		decoded, encoded, err := recode(kind, payload)
		if err != nil {
			t.Errorf("type %d: %v", kind, err)
		}
		if !bytes.Equal(encoded, payload) {
			t.Errorf("type %d: %x became %x", kind, payload, encoded)
		}
		if kind == frameStep {
			got := decoded.([]any)
			var want []sequenceEvent
			for _, id := range []uint64{3, 9} {
				for _, e := range sampleEvents() {
					want = append(want, sequenceEvent{Sequence: id, Event: e})
				}
			}
			if diff := cmp.Diff([]any{sampleState(), sampleRecords(), want}, got, same); diff != "" {
				t.Errorf("step (-want +got):\n%s", diff)
			}
		}
	}
}

func TestCodecRefusesEveryTruncation(t *testing.T) {
	for kind, payload := range samples() {
		for n := range payload {
			_, encoded, err := recode(kind, payload[:n])
			// A step may end after any event; it is then a shorter step.
			if err == nil && (kind != frameStep || !bytes.Equal(encoded, payload[:n])) {
				t.Errorf("type %d: the first %d of %d bytes are taken", kind, n, len(payload))
			}
			if err != nil && err.Kind != Protocol {
				t.Errorf("type %d: %v", kind, err)
			}
		}
		if _, _, err := recode(kind, append(bytes.Clone(payload), 0)); err == nil {
			t.Errorf("type %d: a trailing byte is taken", kind)
		}
	}
}

func FuzzFrame(f *testing.F) {
	for kind, payload := range samples() {
		f.Add(endFrame(append(beginFrame(nil, kind), payload...), 0))
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, frameStep, 1})
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := newFrameReader(bytes.NewReader(stream), 1<<20)
		for {
			kind, payload, err := r.next()
			if err != nil {
				var e *Error
				if err != io.EOF && !(errors.As(err, &e) && e.Kind == Protocol) {
					t.Fatalf("unnamed error %v", err)
				}
				return
			}
			first, encoded, refused := recode(kind, payload)
			if refused != nil {
				continue
			}
			second, again, refused := recode(kind, encoded)
			if refused != nil {
				t.Fatalf("type %d: %x became %x, which is refused: %v", kind, payload, encoded, refused)
			}
			if !bytes.Equal(encoded, again) || !cmp.Equal(first, second, same) {
				t.Fatalf("type %d: %x became %x, then %x\n%s", kind, payload, encoded, again, cmp.Diff(first, second, same))
			}
		}
	})
}

func TestFrameReaderNamesWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct{ stream, want string }{
		"huge length":    {"\xff\xff\xff\xff\x04", "outside the limit"},
		"zero length":    {"\x00\x00\x00\x00\x04", "outside the limit"},
		"cut in head":    {"\x05\x00", "inside a frame's head"},
		"cut in payload": {"\x05\x00\x00\x00\x04ab", "inside a frame of 5 bytes"},
	} {
		_, _, err := newFrameReader(strings.NewReader(c.stream), 1<<20).next()
		var e *Error
		if !errors.As(err, &e) || e.Kind != Protocol || !strings.Contains(e.Message, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFrameReaderTrustsBytesNotLengths: a claim of 1 GiB with few bytes behind it.
func TestFrameReaderTrustsBytesNotLengths(t *testing.T) {
	stream := append([]byte{0, 0, 0, 0x40, frameStep}, make([]byte, 100_000)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := newFrameReader(bytes.NewReader(stream), 1<<30).next()
	runtime.ReadMemStats(&after)
	if err == nil {
		t.Fatal("taken")
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 2<<20 {
		t.Errorf("%d bytes allocated for %d received", got, len(stream))
	}
}

func TestFrameReaderGivesLargeBuffersBack(t *testing.T) {
	large, small := frame(frameStep, make([]byte, 2*frameKeep)), frame(frameStep, make([]byte, 10))
	r := newFrameReader(bytes.NewReader(append(large, small...)), 4*frameKeep)
	for _, want := range []int{2 * frameKeep, 10} {
		if _, payload, err := r.next(); err != nil || len(payload) != want {
			t.Fatalf("%d bytes, %v; want %d", len(payload), err, want)
		}
	}
	if cap(r.buf) > frameKeep {
		t.Errorf("%d bytes kept for a frame of 10", cap(r.buf))
	}
}

func TestStepRefusesFloods(t *testing.T) {
	b := appendBool(nil, false)
	for i := range 100 {
		b = appendEvent(b, uint64(min(1, 1-min(i, 1))), &Event{})
	}
	if err := new(stepFrame).decode(b, 100); err != nil {
		t.Errorf("as many as there is room for: %v", err)
	}
	if err := new(stepFrame).decode(b, 99); err == nil || err.Kind != Protocol {
		t.Errorf("one more: %v", err)
	}
	after := appendEvent(appendEvent(appendBool(nil, false), 1, &Event{End: &End{}}), 0, &Event{})
	if err := new(stepFrame).decode(after, 9); err == nil || !strings.Contains(err.Message, "follows the end") {
		t.Errorf("after the end: %v", err)
	}
}

func TestCheckClock(t *testing.T) {
	const ms = 1_000_000
	for name, c := range map[string]struct {
		sent, peer, received int64
		ok                   bool
	}{
		"inside":          {100 * ms, 101 * ms, 102 * ms, true},
		"long round trip": {100 * ms, 600 * ms, 900 * ms, true},
		"a bit off":       {100 * ms, 102*ms + ms*9/10, 102 * ms, true},
		"not a bit":       {100 * ms, 102*ms + ms*11/10, 102 * ms, false},
		"behind":          {100 * ms, 50 * ms, 102 * ms, false},
		"ahead":           {100 * ms, 200 * ms, 102 * ms, false},
		"another boot":    {100 * ms, 1 << 60, 102 * ms, false},
	} {
		err := checkClock(c.sent, c.peer, c.received)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// sample64 is a step of 64 sequences with one event each.
func sample64() []byte {
	b := appendSampleRecords(appendState(appendBool(nil, true), &State{Step: 1}), nil)
	for range 64 {
		b = appendEvent(b, 1, &Event{Text: " token", TokenCount: 3})
	}
	return b
}

func TestStepFrameAllocations(t *testing.T) {
	payload, s := sample64(), new(stepFrame)
	if n := testing.AllocsPerRun(100, func() {
		if err := s.decode(payload, 1<<10); err != nil {
			t.Fatal(err)
		}
	}); n > 2 { // state, text
		t.Errorf("decoding a step of 64 sequences allocates %v times", n)
	}
	c := &connection{cfg: &ServerConfig{FrameBytesMax: 1 << 20}, engine: stillEngine{state: new(State)}, notify: make(chan struct{}, 1)}
	for i := range 64 {
		c.sequences = append(c.sequences, &served{id: uint64(i + 1), window: 1 << 30, credit: 1 << 30, stream: NewStream(16, c.notify, stillControl{})})
	}
	var b []byte
	if n := testing.AllocsPerRun(100, func() {
		for _, q := range c.sequences {
			q.stream.Put(Event{Text: " token"})
		}
		b, _ = c.compose(b[:0], true)
	}); n > 0 {
		t.Errorf("composing a step of 64 sequences allocates %v times", n)
	}
}

type stillEngine struct {
	Engine
	state *State
}

func (e stillEngine) State() *State { return e.state }

type stillControl struct{}

func (stillControl) Pause()  {}
func (stillControl) Resume() {}
func (stillControl) Cancel() {}
func (stillControl) Taken()  {}

func BenchmarkStepDecode64(b *testing.B) {
	payload, s := sample64(), new(stepFrame)
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if err := s.decode(payload, 1<<10); err != nil {
			b.Fatal(err)
		}
	}
}
