package grammar

import "fmt"

// Unlimited is the max of a Times or a Repeat without one.
const Unlimited = -1

// Limits bounds what one grammar may use. A zero is no room at all, so begin
// with DefaultLimits.
type Limits struct {
	Nodes      int // nodes of regular expressions while the grammar is built
	Positions  int // places within rules
	Work       int // steps of work for one call of Compile, Empty or Match
	StepWork   int // steps of work for one byte while matching
	MaskWork   int // steps of work for one mask
	Masks      int // masks that are remembered, each a bit for every token
	Items      int // items of one row of the parser
	Threads    int // ways to cut the text into terminals that are open at the same time
	Memory     int // bytes made while matching; above it what is not in use is dropped before the next token, at four times as much a mask fails
	Count      int // largest bound of Times and Repeat
	Nesting    int // depth of groups in the text of a pattern or grammar
	SourceSize int // bytes of the text of a pattern or grammar
}

// DefaultLimits suits requests from strangers.
func DefaultLimits() Limits {
	return Limits{
		Nodes: 1 << 19, Positions: 1 << 18, Work: 4 << 20, StepWork: 1 << 20, MaskWork: 1 << 21, Masks: 256, Items: 1 << 15, Threads: 64,
		Memory: 16 << 20, Count: 1_000_000, Nesting: 64, SourceSize: 1 << 20,
	}
}

// LimitError says which bound of Limits was met.
type LimitError struct {
	Limit string // the field's name in words
	Max   int
	Where string // the rule or terminal, empty if none can be named
}

func (e *LimitError) Error() string {
	if e.Where == "" {
		return fmt.Sprintf("the grammar is too large: more than %d %s", e.Max, e.Limit)
	}
	return fmt.Sprintf("the grammar is too large at %s: more than %d %s", e.Where, e.Max, e.Limit)
}

// EmptyError says that nothing matches the whole grammar.
type EmptyError struct{ Name string }

func (e *EmptyError) Error() string { return fmt.Sprintf("nothing can match %s", e.Name) }

// SyntaxError is a fault in the text of a pattern or grammar.
type SyntaxError struct {
	Kind   string // "regular expression", "GBNF grammar", "Lark grammar"
	Offset int    // byte offset into a text of one line
	Line   int    // 1 is the first; 0 where the text is one line
	Reason string
}

func (e *SyntaxError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s, line %d: %s", e.Kind, e.Line, e.Reason)
	}
	return fmt.Sprintf("%s, byte %d: %s", e.Kind, e.Offset, e.Reason)
}
