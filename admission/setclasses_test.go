package admission

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestClassesChangeWhileTheyWait: the invariants hold whatever classes become, and new
// ones are served in the order of their level.
func TestClassesChangeWhileTheyWait(t *testing.T) {
	table := func(classes ...Class) []Class {
		c := Config{Classes: classes}
		table, err := c.ClassTable()
		if err != nil {
			t.Fatal(err)
		}
		return table
	}
	for seed := range uint64(8) {
		p := newPlay(t, seed, Config{RunningSequencesMax: 4, WaitingRequestsMax: 40})
		for i := range 600 {
			if i%20 == 0 {
				classes := []Class{{Name: "interactive", FirstTokenGoal: time.Duration(1+p.rnd.IntN(5)) * time.Second, AgeCap: time.Duration(1+p.rnd.IntN(20)) * time.Second},
					{Name: "offline", Window: time.Duration(1+p.rnd.IntN(100)) * time.Millisecond, Cap: 0.1 + p.rnd.Float64()/2, WaitLimit: 10 * time.Second}}
				if i >= 200 {
					classes = append(classes, Class{Name: "unknown", Level: "batch", Floor: p.rnd.Float64() / 2})
				}
				if err := p.SetClasses(table(classes...)); err != nil {
					t.Fatal(err)
				}
				p.pump()
			}
			p.randomTurn()
			p.check(t, p.entries)
		}
		if !slices.IsSortedFunc(p.classes, func(a, b *class) int { return a.level - b.level }) {
			t.Fatal("the classes are out of order")
		}
	}
}

func TestClassKeepsItsLevel(t *testing.T) {
	p := newPlay(t, 1, Config{Classes: []Class{{Name: "chat"}}})
	goal := p.byName["chat"].FirstTokenGoal
	c := Config{Classes: []Class{{Name: "chat", Level: "batch"}}}
	table, _ := c.ClassTable()
	want := "classes: chat is of the level interactive until a restart; give the class of the level batch another name"
	if err := p.SetClasses(table); fmt.Sprint(err) != want || p.byName["chat"].FirstTokenGoal != goal {
		t.Errorf("got %v", err)
	}
}
