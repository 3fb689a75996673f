package control

import (
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/forebay-io/forebay/xds"
)

// setsOf are sets whose one policy file has the text.
func setsOf(t *testing.T, text string) *Sets {
	t.Helper()
	dir := t.TempDir()
	p := &plane{t: t, dir: dir}
	p.write("a.yaml", "admission: {default_class: batch} # "+text)
	files, err := Read(dir, 10, 10000)
	if err != nil {
		t.Fatal(err)
	}
	sets, err := Build(files)
	if err != nil {
		t.Fatal(err)
	}
	return sets
}

func TestTrial(t *testing.T) {
	start := time.Unix(1000, 0)
	one, two, three := setsOf(t, "1"), setsOf(t, "2"), setsOf(t, "3")
	canary := &node{id: "c", kind: Forebay, canary: true, types: map[string]*progress{xds.PolicyType: {whole: true}}}
	p := canary.types[xds.PolicyType]
	takes := func(s *Sets) {
		*p = progress{whole: true, sent: s.of(Forebay).GetVersion(xds.PolicyType)}
		p.acked = p.sent
	}
	tr := trial{rule: rule{percent: 10, hold: time.Minute}}
	if !tr.offer(one, start) || tr.of(true) != one || tr.of(false) != one {
		t.Fatal("the first version goes to all")
	}
	if !tr.offer(two, start) || tr.of(true) != two || tr.of(false) != one {
		t.Fatal("a new version goes to the canaries alone")
	}
	takes(one)
	if word := tr.decide([]*node{canary}, start.Add(2*time.Minute)); word != "" {
		t.Errorf("it ended before it arrived: %s", word)
	}
	takes(two)
	if word := tr.decide([]*node{canary}, start.Add(59*time.Second)); word != "" {
		t.Errorf("it ended early: %s", word)
	}
	if word := tr.decide([]*node{canary}, start.Add(time.Minute)); word == "" || tr.of(false) != two {
		t.Errorf("it did not go to all: %q", word)
	}
	tr.offer(three, start)
	takes(three)
	p.problem, p.acked = "a.yaml:1: is wrong", two.of(Forebay).GetVersion(xds.PolicyType)
	if word := tr.decide([]*node{canary}, start); !strings.Contains(word, "c refuses it: a.yaml:1: is wrong") || tr.of(true) != two {
		t.Errorf("it was not taken back: %q", word)
	}
	if tr.offer(three, start) {
		t.Error("the refused version was taken again")
	}
	if !strings.Contains(tr.words(), "was taken back") {
		t.Error(tr.words())
	}
	if !tr.offer(one, start) || tr.of(true) != one || tr.offer(one, start) {
		t.Error("another version ends the refusal, once")
	}
	if !tr.offer(two, start) || tr.of(true) != two || tr.next != nil {
		t.Error("the version that all have ends the trial")
	}
}

// TestSickVersionIsTakenBack: a version that all canaries take, and under which their
// requests fail more often than elsewhere, is taken back.
func TestSickVersionIsTakenBack(t *testing.T) {
	one, two := setsOf(t, "1"), setsOf(t, "2")
	start := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		canary, rest tally // at the start, and then what came since
		more, other  tally
		back         bool
	}{
		"all is well":                       {more: tally{100, 1}},
		"every request fails":               {more: tally{100, 100}, back: true},
		"too few to say":                    {more: tally{19, 19}},
		"elsewhere it is the same":          {more: tally{100, 50}, other: tally{1000, 480}},
		"elsewhere it is better":            {more: tally{100, 50}, other: tally{1000, 300}, back: true},
		"they failed before the trial":      {canary: tally{1000, 1000}, more: tally{100, 1}},
		"nothing failed before, and now it": {canary: tally{1e6, 0}, more: tally{100, 11}, back: true},
	} {
		canary := &node{id: "c", kind: Forebay, canary: true, types: map[string]*progress{}}
		rest := &node{id: "r", kind: Forebay, types: map[string]*progress{}}
		tr := trial{rule: rule{percent: 10, hold: time.Minute, failedMax: 0.1, requestsMin: 20}}
		tr.offer(one, start)
		canary.heard(c.canary)
		rest.heard(c.rest)
		tr.offer(two, start)
		canary.rebase()
		rest.rebase()
		canary.heard(tally{c.canary.requests + c.more.requests, c.canary.failed + c.more.failed})
		rest.heard(tally{c.rest.requests + c.other.requests, c.rest.failed + c.other.failed})
		word := tr.decide([]*node{canary, rest}, start.Add(time.Second))
		if back := tr.rejected != ""; back != c.back || back != strings.Contains(word, "requests at the gateways that have it") {
			t.Errorf("%s: taken back %v: %s", name, back, word)
		}
		if late := tr.decide([]*node{canary, rest}, start.Add(time.Hour)); (late != "") == c.back {
			t.Errorf("%s: later %q", name, late)
		}
	}
	// One that connects during the trial counts from then on, and one that begins anew
	// from 0.
	n := &node{}
	n.heard(tally{500, 400})
	n.heard(tally{600, 401})
	if got := n.during(); got != (tally{100, 1}) {
		t.Errorf("a newcomer has %v", got)
	}
	n.heard(tally{10, 2})
	if got := n.during(); got != (tally{10, 2}) {
		t.Errorf("after a new start %v", got)
	}
}

// TestOldRefusalEndsNoTrial: what a node refused before the trial began says nothing
// about the version on trial, if its resources of that type are the same.
func TestOldRefusalEndsNoTrial(t *testing.T) {
	one := setsOf(t, "1")
	same := &Sets{Version: "other", byKind: one.byKind}
	canary := &node{id: "c", kind: Forebay, canary: true, types: map[string]*progress{
		xds.PolicyType: {whole: true, sent: one.of(Forebay).GetVersion(xds.PolicyType), problem: "is wrong"},
	}}
	tr := trial{rule: rule{percent: 10, hold: time.Minute}}
	tr.offer(one, time.Unix(0, 0))
	tr.offer(same, time.Unix(0, 0))
	if word := tr.decide([]*node{canary}, time.Unix(1, 0)); word != "" {
		t.Error(word)
	}
}

func TestWhoIsCanary(t *testing.T) {
	labelled := &corev3.Node{Id: "x", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"tier": structpb.NewStringValue("test")}}}
	byLabel := rule{key: "tier", value: "test"}
	if !byLabel.includes(labelled) || byLabel.includes(&corev3.Node{Id: "x"}) {
		t.Error("the label does not decide")
	}
	byShare, count := rule{percent: 20}, 0
	for i := range 1000 {
		n := &corev3.Node{Id: "node-" + strings.Repeat("x", i%7) + time.Unix(int64(i), 0).String()}
		if byShare.includes(n) {
			count++
		}
	}
	if count < 150 || count > 250 {
		t.Errorf("%d of 1000 nodes, want about 200", count)
	}
}
