package admission

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The levels of classes, the most urgent first: people wait for level 0.
const (
	levelInteractive = iota
	levelBatch
	levelOffline
	levelCount
)

var levelNames = [levelCount]string{"interactive", "batch", "offline"}

// builtin are the classes that always exist, one for each level. A configured
// class takes what it leaves out from its level's.
var builtin = [levelCount]Class{
	{Name: "interactive", Level: "interactive", FirstTokenGoal: 2 * time.Second, PrefillSlack: 2, TokenGoal: 100 * time.Millisecond, AgeCap: 10 * time.Second, WaitLimit: 30 * time.Second, Cap: 1, WaitingRequestsMax: 1024, WaitingBytesMax: 64 << 20, Late: "refuse"},
	{Name: "batch", Level: "batch", FirstTokenGoal: time.Minute, PrefillSlack: 2, AgeCap: 2 * time.Minute, WaitLimit: 10 * time.Minute, Window: 10 * time.Millisecond, Floor: 0.15, Cap: 0.75, WaitingRequestsMax: 4096, WaitingBytesMax: 128 << 20, Late: "demote"},
	{Name: "offline", Level: "offline", AgeCap: 30 * time.Minute, WaitLimit: 24 * time.Hour, Window: 50 * time.Millisecond, Floor: 0.05, Cap: 0.5, WaitingRequestsMax: 65536, WaitingBytesMax: 256 << 20, Late: "refuse"},
}

// ClassTable is every class, complete, by level and then in the order of the
// configuration. The error lists every mistake in the configured ones.
func (c *Config) ClassTable() ([]Class, error) {
	var errs []error
	table := slices.Clone(builtin[:])
	named := map[string]bool{}
	for i, own := range c.Classes {
		switch {
		case own.Name == "":
			errs = append(errs, fmt.Errorf("classes[%d]: has no name", i))
			continue
		case named[own.Name]:
			errs = append(errs, fmt.Errorf("classes[%d]: the name %q is taken by another", i, own.Name))
			continue
		}
		named[own.Name] = true
		at := slices.IndexFunc(table, func(b Class) bool { return b.Name == own.Name })
		if at >= 0 && own.Level != "" && own.Level != own.Name {
			errs = append(errs, fmt.Errorf("classes[%d]: %s is of level %s, which cannot be changed; give the class another name", i, own.Name, own.Name))
			continue
		}
		full := complete(own)
		if at >= 0 {
			table[at] = full
		} else {
			table = append(table, full)
		}
	}
	slices.SortStableFunc(table, func(a, b Class) int { return cmp.Compare(levelOf(&a), levelOf(&b)) })
	floors := 0.0
	for _, k := range table {
		floors += k.Floor
	}
	if floors > 0.9 {
		errs = append(errs, fmt.Errorf("classes: the floors are %.2f of the engine together; they may be 0.9 at most", floors))
	}
	return table, errors.Join(errs...)
}

// complete fills what own leaves out from its level's built-in class.
func complete(own Class) Class {
	level := max(0, slices.Index(levelNames[:], cmp.Or(own.Level, own.Name)))
	of := &builtin[level]
	return Class{
		Name: own.Name, Level: of.Level,
		FirstTokenGoal:     cmp.Or(own.FirstTokenGoal, of.FirstTokenGoal),
		PrefillSlack:       cmp.Or(own.PrefillSlack, of.PrefillSlack),
		TokenGoal:          cmp.Or(own.TokenGoal, of.TokenGoal),
		AgeCap:             cmp.Or(own.AgeCap, of.AgeCap),
		WaitLimit:          cmp.Or(own.WaitLimit, of.WaitLimit),
		Window:             cmp.Or(own.Window, of.Window),
		Floor:              cmp.Or(own.Floor, of.Floor),
		Cap:                cmp.Or(own.Cap, of.Cap),
		WaitingRequestsMax: cmp.Or(own.WaitingRequestsMax, of.WaitingRequestsMax),
		WaitingBytesMax:    cmp.Or(own.WaitingBytesMax, of.WaitingBytesMax),
		PromptTokensMax:    own.PromptTokensMax,
		OutputTokensMax:    own.OutputTokensMax,
		Late:               cmp.Or(own.Late, of.Late),
		Oversized:          own.Oversized,
		BusyOutputTokens:   own.BusyOutputTokens,
	}
}

func levelOf(c *Class) int { return slices.Index(levelNames[:], c.Level) }
