package grammar

import "slices"

// CharsMax is the largest count that Chars tells from no end.
const CharsMax = 64

// charStep is where one safe character leads from a state.
type charStep struct {
	known bool
	all   bool // every safe character may come
	none  bool // no safe character may come
	to    []State
	least int8 // Chars' answer; 0 is not known yet, else one more than it is
	most  int8
}

// safeShape is a form of UTF-8 characters: ranges of the bytes in turn.
type safeShape [][2]byte

// Safe characters are those that stand for themselves in a JSON string: every
// character but the quote, the backslash and those below the space.
var safeShapes = []safeShape{
	{{0x20, 0x21}}, {{0x23, 0x5B}}, {{0x5D, 0x7F}},
	{{0xC2, 0xDF}, {0x80, 0xBF}},
	{{0xE0, 0xE0}, {0xA0, 0xBF}, {0x80, 0xBF}},
	{{0xE1, 0xEC}, {0x80, 0xBF}, {0x80, 0xBF}},
	{{0xED, 0xED}, {0x80, 0x9F}, {0x80, 0xBF}},
	{{0xEE, 0xEF}, {0x80, 0xBF}, {0x80, 0xBF}},
	{{0xF0, 0xF0}, {0x90, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}},
	{{0xF1, 0xF3}, {0x80, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}},
	{{0xF4, 0xF4}, {0x80, 0x8F}, {0x80, 0xBF}, {0x80, 0xBF}},
}

// SafeByte says whether c alone is a safe character.
func SafeByte(c byte) bool { return c >= 0x20 && c < 0x80 && c != '"' && c != '\\' }

// Chars says how many safe characters may follow in s whatever they are
// (least), and from how many on none may (most): of a text of at most least
// safe characters each is allowed, of one of more than most none is. Both are
// CharsMax if there is no end before it.
func (a *Automaton) Chars(s State) (least, most int, err error) {
	if st := &a.steps[s]; st.least > 0 {
		return int(st.least) - 1, int(st.most) - 1, nil
	}
	reached := []State{s}
	seen := map[State]bool{s: true}
	least, most = CharsMax, CharsMax
	for n := 0; n < CharsMax && len(reached) > 0; n++ {
		all, any := true, false
		var next []State
		for _, q := range reached {
			step, err := a.charStep(q)
			if err != nil {
				return 0, CharsMax, err
			}
			all, any = all && step.all, any || !step.none
			for _, to := range step.to {
				if !slices.Contains(next, to) {
					next = append(next, to)
				}
			}
		}
		if !any {
			least, most = min(least, n), n
			break
		}
		if !all {
			least = min(least, n)
			if len(next) > 16 { // most stays at no end
				break
			}
		}
		fresh := false
		for _, q := range next {
			if !seen[q] {
				seen[q], fresh = true, true
			}
		}
		if !fresh { // whatever was reached is reached again for ever
			break
		}
		reached = next
		if len(seen) > 512 {
			least = min(least, n+1)
			break
		}
	}
	a.steps[s].least, a.steps[s].most = int8(least+1), int8(most+1)
	return least, most, nil
}

func (a *Automaton) charStep(s State) (*charStep, error) {
	if a.steps[s].known {
		return &a.steps[s], nil
	}
	c := charStep{known: true, all: true, none: true}
	for _, shape := range safeShapes {
		if err := a.follow(s, shape, &c); err != nil {
			return nil, err
		}
	}
	c.least, c.most = a.steps[s].least, a.steps[s].most
	a.steps[s] = c
	return &a.steps[s], nil
}

func (a *Automaton) follow(s State, shape safeShape, c *charStep) error {
	var done [4]uint64
	for b := int(shape[0][0]); b <= int(shape[0][1]); b++ {
		class := a.pool.class[b]
		if done[class>>6]>>(class&63)&1 != 0 {
			continue
		}
		done[class>>6] |= 1 << (class & 63)
		to, err := a.Next(s, byte(b))
		switch {
		case err != nil:
			return err
		case to == Dead:
			c.all = false
		case len(shape) > 1:
			if err := a.follow(to, shape[1:], c); err != nil {
				return err
			}
		default:
			c.none = false
			if !slices.Contains(c.to, to) {
				c.to = append(c.to, to)
			}
		}
	}
	return nil
}
