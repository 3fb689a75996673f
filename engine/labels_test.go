package engine

import (
	"bytes"
	"regexp"
	"runtime/pprof"
	"strconv"
	"testing"
)

func TestGoroutinesThatComputeAreLabelled(t *testing.T) {
	b := newDemo(t, Config{Threads: 3})
	q := question{id: "q", tokens: prompt(1, 20), options: greedy(5), level: 2}
	mustEnd(t, q, b.ask(q))
	var text bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil {
		t.Fatal(err)
	}
	labelled := 0
	for _, group := range regexp.MustCompile(`(?m)^(\d+) @.*\n# labels: \{"level":"2", "part":"engine", "phase":"decode"\}$`).FindAllStringSubmatch(text.String(), -1) {
		n, _ := strconv.Atoi(group[1])
		labelled += n
	}
	if labelled != 3 { // the loop, and two that help it
		t.Errorf("%d goroutines have the labels of a decode step; want 3:\n%s", labelled, text.String())
	}
}
