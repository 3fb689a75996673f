package admission

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/goccy/go-yaml"

	"github.com/forebay-io/forebay/cache/hitmap"
	"github.com/forebay-io/forebay/internal/cost"
)

// TestScripts runs the files of testdata/scripts: a configuration as users write
// it, then commands, and what the scheduler decides after each. With -rewrite the
// files take what it decides now.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		var x *script
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "config":
				var cfg Config
				if err := yaml.UnmarshalWithOptions([]byte(d.Input), &cfg, yaml.Strict()); err != nil {
					return err.Error()
				}
				x = newScript(t, cfg)
				return ""
			case "run":
				for line := range strings.Lines(d.Input) {
					x.run(strings.TrimSpace(line))
				}
				return x.take()
			}
			return "no command " + d.Cmd
		})
	})
}

// script is a scheduler with the engine that its commands play. The engine takes
// 1 ms for a prompt token and nothing for a token of an answer, unless a script
// says otherwise: so predictions can be checked in the head.
type script struct {
	*play
	out    strings.Builder
	names  map[string]*Entry
	report Report
}

func newScript(t *testing.T, cfg Config) *script {
	x := &script{play: newPlay(t, 1, cfg), names: map[string]*Entry{}}
	x.report = Report{Up: true, Cost: cost.Cost{PrefillToken: 1e6}, Room: cost.Room{TokensMax: 100}, KVTokens: 1 << 20}
	x.Report(x.report, 0)
	return x
}

// run executes a command and writes down what is decided after it.
//
//	arrive NAME prompt=N [class=C] [tenant=T] [cached=N] [answer=N] [choices=N]
//	       [bytes=N] [within=D] [blocks=N,N] [user=U] [retry]
//	engine [down] [prefill=D] [decode=D] [step=N] [memory=N] [short=N] [long=N]
//	       [cached=N,N] [evicted=N,N] [missed]     a report; it keeps what it says, but blocks
//	serve N [slow=K] the engine ends the N requests that started first, one after another,
//	                 and takes K times as long as it says
//	token NAME N     NAME has N tokens of its answer
//	end NAME         NAME ends, with the tokens that it has
//	wait D           time goes by; the scheduler is woken when it asked for it
//	mode CLASS open|paused|drained
//	queue            what waits, in the order of service
//	tenants          what tenants with work may still take
//	classes          what classes hold
func (x *script) run(line string) {
	fmt.Fprintln(&x.out, line)
	fields := strings.Fields(line)
	if len(fields) == 0 || fields[0] == "#" {
		return
	}
	args := newArgs(fields[1:])
	switch fields[0] {
	case "arrive":
		x.arrives(args)
	case "engine":
		x.engineSays(args)
	case "serve":
		slow := args.number("slow", 1)
		for range args.count(0) {
			x.serve(slow)
		}
	case "token":
		x.Progress(x.names[args.words[0]], args.count(1), x.now)
	case "end":
		x.ends(x.names[args.words[0]])
	case "wait":
		x.wait(args.duration(args.words[0]))
	case "mode":
		if err := x.SetMode(args.words[0], Mode(slices.Index(modeNames[:], args.words[1])), x.now); err != nil {
			x.say("%v", err)
		}
	case "queue":
		x.queue()
	case "tenants":
		for _, v := range x.View(x.now).Tenants {
			x.say("%s in %s: %d wait, %d run, deficit %v", v.Name, v.Class, v.Waiting, v.Running, v.Deficit)
		}
	case "classes":
		for _, v := range x.View(x.now).Classes {
			x.say("%s: %v, %d wait, %d run, backlog %v, %d refused, %d demoted", v.Name, v.Mode, v.Waiting, v.Running, v.Backlog, v.Refused, v.Demoted)
		}
		x.say("brownout %d", x.load.rung)
	default:
		x.t.Fatalf("there is no command %q", line)
	}
	x.decide()
	x.check(x.t, x.entries)
}

// say writes what happened, with the time at which it did.
func (x *script) say(format string, args ...any) {
	fmt.Fprintf(&x.out, "  %v: %s\n", x.now, fmt.Sprintf(format, args...))
}

func (x *script) take() string {
	defer x.out.Reset()
	return x.out.String()
}

// decide starts what may start and tells who was refused.
func (x *script) decide() {
	for e := x.Next(x.now); e != nil; e = x.Next(x.now) {
		g := e.Grant()
		cut := ""
		if g.OutputTokens > 0 {
			cut = fmt.Sprintf(", at most %d tokens", g.OutputTokens)
		}
		x.say("%s starts%s%s%s%s", e.ID(), as(e), map[bool]string{true: ", long"}[g.Long], cut, waited(g.Waited, g.Why))
	}
	for _, e := range x.TakeRefused() {
		x.refused(e.ID(), e.refusal)
		x.Done(e, Spent{}, x.now)
	}
	x.entries = slices.DeleteFunc(x.entries, func(e *Entry) bool { return e.state == settled })
}

// as names the class and level of a request that was demoted.
func as(e *Entry) string {
	if e.class == e.asked {
		return ""
	}
	return fmt.Sprintf(" as %s, level %d", e.class.Name, e.level)
}

func waited(d time.Duration, why Why) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf(", waited %v (%v)", d, why)
}

func (x *script) refused(name string, r *Refusal) {
	x.say("%s is refused: %v, predicted %v, retry after %v", name, r.Reason, r.Predicted, r.RetryAfter)
}

func (x *script) arrives(a *args) {
	name := a.words[0]
	w := Demand{
		ID: name, Tenant: a.text("tenant", "a"), Class: a.text("class", "interactive"), User: a.text("user", ""),
		Sequences: a.number("choices", 1), PromptTokens: a.number("prompt", 1), DecodeTokens: a.number("answer", 1),
		Bytes: a.number("bytes", 0), Blocks: a.numbers("blocks"), Within: a.duration(a.text("within", "0s")), Retry: a.has("retry"),
	}
	w.DecodeTokens *= w.Sequences
	w.UncachedTokens = w.PromptTokens - a.number("cached", 0)
	if len(w.Blocks) > 0 {
		w.BlockTokens = w.PromptTokens / len(w.Blocks)
	}
	a.done(x.t)
	e, r := x.Arrive(w, x.now)
	if r != nil {
		x.refused(name, r)
		return
	}
	x.names[name] = e
	x.entries = append(x.entries, e)
	goal := "no goal"
	if e.due > 0 {
		goal = fmt.Sprintf("goal %v", e.due-e.arrived)
	}
	x.say("%s is predicted %v, %s%s", name, e.predicted, goal, as(e))
}

func (x *script) engineSays(a *args) {
	r := &x.report
	r.Up, r.At = !a.has("down"), x.now
	r.Cost.PrefillToken = float64(a.duration(a.text("prefill", fmt.Sprint(time.Duration(r.Cost.PrefillToken)))))
	r.Cost.DecodeRow = float64(a.duration(a.text("decode", fmt.Sprint(time.Duration(r.Cost.DecodeRow)))))
	r.Room.TokensMax, r.KVTokens = a.number("step", r.Room.TokensMax), a.number("memory", r.KVTokens)
	r.ShortPrefill, r.LongPrefill = a.number("short", r.ShortPrefill), a.number("long", r.LongPrefill)
	r.Blocks = hitmap.News{Missed: a.has("missed")}
	for _, hash := range a.numbers("evicted") {
		r.Blocks.Changes = append(r.Blocks.Changes, hitmap.Change{Hash: hash, Evicted: true})
	}
	for _, hash := range a.numbers("cached") {
		r.Blocks.Changes = append(r.Blocks.Changes, hitmap.Change{Hash: hash})
	}
	a.done(x.t)
	x.Report(*r, x.now)
	r.Blocks = hitmap.News{}
}

// serve ends the request that started first: slow times its prefill goes by, and
// then it has its one token.
func (x *script) serve(slow int) {
	if len(x.running) == 0 {
		x.say("nothing runs")
		return
	}
	e := slices.MinFunc(x.running, func(a, b *Entry) int {
		if a.started != b.started {
			return int(a.started - b.started)
		}
		return int(a.order) - int(b.order)
	})
	x.wait(time.Duration(slow) * e.prefill)
	x.Progress(e, 1, x.now)
	x.ends(e)
	x.report.At = x.now
	x.Report(x.report, x.now)
	x.decide()
}

func (x *script) ends(e *Entry) {
	x.say("%s ends after %d tokens", e.ID(), e.tokens)
	x.Done(e, Spent{ComputedTokens: e.uncached(), CachedTokens: e.cached, CompletionTokens: e.tokens, Whole: e.tokens > 0}, x.now)
}

// wait lets time go by. It decides each second, as an idle engine reports too, and
// when the scheduler asked to be woken.
func (x *script) wait(d time.Duration) {
	for end := x.now + d; x.now < end; x.decide() {
		next := min(end, x.now+time.Second)
		if at, ok := x.WakeAt(); ok && at < next {
			next = max(at, x.now+1)
		}
		x.now = next
	}
}

func (x *script) queue() {
	for _, v := range x.View(x.now).Waiting {
		lane := map[bool]string{false: "short", true: "long"}[v.Long]
		starts := "in " + v.Starts.String()
		if v.Starts == StartsUnknown {
			starts = "nobody knows when"
		}
		x.say("%s of %s in %s, %s: prefill %v, cost %v, starts %s, waits for %v", v.ID, v.Tenant, v.Class, lane, v.Prefill, v.Cost, starts, v.Why)
	}
}

// args are the arguments of a command: words, and values by their key.
type args struct {
	words  []string
	values map[string]string
}

func newArgs(fields []string) *args {
	a := &args{values: map[string]string{}}
	for _, f := range fields {
		if key, value, ok := strings.Cut(f, "="); ok {
			a.values[key] = value
		} else {
			a.words = append(a.words, f)
		}
	}
	return a
}

func (a *args) text(key, otherwise string) string {
	value, ok := a.values[key]
	if delete(a.values, key); ok {
		return value
	}
	return otherwise
}

func (a *args) number(key string, otherwise int) int {
	n, err := strconv.Atoi(a.text(key, fmt.Sprint(otherwise)))
	if err != nil {
		panic(err)
	}
	return n
}

func (a *args) numbers(key string) (list []uint64) {
	for text := range strings.SplitSeq(a.text(key, ""), ",") {
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			list = append(list, n)
		}
	}
	return list
}

func (a *args) has(word string) bool { return slices.Contains(a.words, word) }

func (a *args) count(i int) int {
	n, err := strconv.Atoi(a.words[i])
	if err != nil {
		panic(err)
	}
	return n
}

func (a *args) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

// done demands that every value was used.
func (a *args) done(t *testing.T) {
	t.Helper()
	for key := range a.values {
		t.Fatalf("no argument %s", key)
	}
}
