package schema

import (
	"math/big"
	"strings"

	"github.com/forebay-io/forebay/engine/grammar"
)

// How many digits a number may have where the schema gives no bound: more
// than a double tells apart, and few enough that no number is endless.
const (
	integerDigits  = 64
	fractionDigits = 32
	exponentDigits = 3
)

// maxModulus bounds multipleOf, whose automaton has as many states.
const maxModulus = 10_000

// numberer makes regular expressions of numbers as JSON writes them.
type numberer struct {
	b        *grammar.Builder
	digit    grammar.Regex
	natural  grammar.Regex // an integer from 0
	fraction grammar.Regex // point and digits, or nothing
	zeros    grammar.Regex // point and zeros, or nothing
	some     grammar.Regex // point and digits, one of them not 0
	exponent grammar.Regex
}

func newNumberer(b *grammar.Builder) numberer {
	n := numberer{b: b, digit: b.Bytes('0', '9')}
	point := b.Literal(".")
	n.natural = b.Or(b.Literal("0"), b.Cat(b.Bytes('1', '9'), b.Times(n.digit, 0, integerDigits-1)))
	n.fraction = b.Times(b.Cat(point, b.Times(n.digit, 1, fractionDigits)), 0, 1)
	n.zeros = b.Times(b.Cat(point, b.Times(b.Literal("0"), 1, fractionDigits)), 0, 1)
	n.some = b.Cat(point, n.above())
	n.exponent = b.Times(b.Cat(b.Or(b.Literal("e"), b.Literal("E")), b.Times(b.Or(b.Literal("+"), b.Literal("-")), 0, 1), b.Times(n.digit, 1, exponentDigits)), 0, 1)
	return n
}

// above is digits that are not all 0.
func (n *numberer) above() grammar.Regex {
	return n.b.Cat(n.b.Times(n.b.Literal("0"), 0, fractionDigits), n.b.Bytes('1', '9'), n.b.Times(n.digit, 0, fractionDigits))
}

// regex matches the spellings of the numbers of a set. A number under a
// condition is written without an exponent.
func (n *numberer) regex(x *numbers) grammar.Regex {
	b := n.b
	if x.isListed {
		return n.listed(x)
	}
	minus := b.Literal("-")
	sign := b.Times(minus, 0, 1)
	if x.low == nil && x.high == nil && !x.fraction && len(x.multiples)+len(x.notMultiples)+len(x.except) == 0 {
		if x.integer {
			return b.Cat(sign, n.natural)
		}
		return b.Cat(sign, n.natural, n.fraction, n.exponent)
	}
	plain := n.natural
	if !x.integer {
		plain = b.Cat(n.natural, n.fraction)
	}
	conditions := []grammar.Regex{b.Or(n.positive(x, plain), b.Cat(minus, n.negative(x, plain)))}
	if x.fraction {
		conditions = append(conditions, b.Not(b.Cat(sign, n.natural, n.zeros)))
	}
	for _, m := range x.multiples {
		conditions = append(conditions, b.Cat(sign, n.multiple(m, x)))
	}
	for _, m := range x.notMultiples {
		conditions = append(conditions, b.Not(b.Cat(sign, n.multiple(m, x))))
	}
	if len(x.except) > 0 {
		conditions = append(conditions, b.Not(n.listed(&numbers{listed: x.except, isListed: true, except: x.except})))
	}
	return b.And(conditions...)
}

// positive is the numbers from 0 that are within the bounds.
func (n *numberer) positive(x *numbers, plain grammar.Regex) grammar.Regex {
	list := []grammar.Regex{plain}
	if x.low != nil && (x.low.Sign() > 0 || x.low.Sign() == 0 && x.lowOpen) {
		list = append(list, n.atLeast(x.low, x.lowOpen))
	}
	if x.high != nil {
		if x.high.Sign() < 0 {
			return n.b.Never()
		}
		list = append(list, n.atMost(x.high, x.highOpen))
	}
	return n.b.And(list...)
}

// negative is the magnitudes of the numbers below 0 that are within the
// bounds. -0 is among them only where nothing bounds from below at 0.
func (n *numberer) negative(x *numbers, plain grammar.Regex) grammar.Regex {
	list := []grammar.Regex{plain}
	if x.low != nil {
		if x.low.Sign() >= 0 {
			return n.b.Never()
		}
		list = append(list, n.atMost(new(big.Rat).Neg(x.low), x.lowOpen))
	}
	if x.high != nil && (x.high.Sign() < 0 || x.high.Sign() == 0 && x.highOpen) {
		list = append(list, n.atLeast(new(big.Rat).Neg(x.high), x.highOpen))
	}
	return n.b.And(list...)
}

// parts are the digits before and after the point.
func parts(x *big.Rat) (whole, fraction string) {
	whole, fraction, _ = strings.Cut(decimal(x), ".")
	return whole, fraction
}

// decimal writes a number without an exponent and without zeros at its end.
func decimal(x *big.Rat) string {
	if x.IsInt() {
		return x.Num().String()
	}
	digits, exact := x.FloatPrec()
	if !exact {
		digits = fractionDigits
	}
	return x.FloatString(digits)
}

// atLeast matches magnitudes, as natural and fraction write them, of x or
// more; of more than x if open.
func (n *numberer) atLeast(x *big.Rat, open bool) grammar.Regex {
	b := n.b
	whole, fraction := parts(x)
	if len(whole) > integerDigits {
		return b.Never()
	}
	var list []grammar.Regex
	if len(whole) < integerDigits {
		list = append(list, b.Cat(b.Bytes('1', '9'), b.Times(n.digit, len(whole), integerDigits-1), n.fraction))
	}
	for i := range len(whole) {
		if whole[i] < '9' {
			list = append(list, b.Cat(b.Literal(whole[:i]), b.Bytes(whole[i]+1, '9'), b.Times(n.digit, len(whole)-i-1, len(whole)-i-1), n.fraction))
		}
	}
	rest := b.Times(n.digit, 0, fractionDigits)
	var same []grammar.Regex // what follows the same digits before the point
	for i := range len(fraction) {
		if fraction[i] < '9' {
			same = append(same, b.Cat(b.Literal("."+fraction[:i]), b.Bytes(fraction[i]+1, '9'), rest))
		}
	}
	switch {
	case fraction == "" && open:
		same = append(same, n.some)
	case fraction == "":
		same = append(same, n.fraction)
	case open:
		same = append(same, b.Cat(b.Literal("."+fraction), n.above()))
	default:
		same = append(same, b.Cat(b.Literal("."+fraction), rest))
	}
	return b.Or(append(list, b.Cat(b.Literal(whole), b.Or(same...)))...)
}

// atMost matches magnitudes of x or less; of less than x if open.
func (n *numberer) atMost(x *big.Rat, open bool) grammar.Regex {
	b := n.b
	whole, fraction := parts(x)
	if len(whole) > integerDigits {
		return b.Cat(n.natural, n.fraction)
	}
	var list []grammar.Regex
	if len(whole) > 1 {
		list = append(list, b.Cat(b.Or(b.Literal("0"), b.Cat(b.Bytes('1', '9'), b.Times(n.digit, 0, len(whole)-2))), n.fraction))
	}
	for i := range len(whole) {
		least := byte('0')
		if i == 0 && len(whole) > 1 {
			least = '1'
		}
		if whole[i] > least {
			list = append(list, b.Cat(b.Literal(whole[:i]), b.Bytes(least, whole[i]-1), b.Times(n.digit, len(whole)-i-1, len(whole)-i-1), n.fraction))
		}
	}
	zeros, rest := b.Times(b.Literal("0"), 0, fractionDigits), b.Times(n.digit, 0, fractionDigits)
	var same []grammar.Regex
	for i := range len(fraction) {
		if i == 0 {
			same = append(same, b.Epsilon())
		} else {
			same = append(same, b.Literal("."+fraction[:i]))
		}
		if fraction[i] > '0' {
			same = append(same, b.Cat(b.Literal("."+fraction[:i]), b.Bytes('0', fraction[i]-1), rest))
		}
	}
	switch {
	case open:
	case fraction == "":
		same = append(same, n.zeros)
	default:
		same = append(same, b.Cat(b.Literal("."+fraction), zeros))
	}
	return b.Or(append(list, b.Cat(b.Literal(whole), b.Or(same...)))...)
}

// multiple matches the magnitudes that m divides.
func (n *numberer) multiple(m *big.Rat, x *numbers) grammar.Regex {
	scale, _ := m.FloatPrec()
	a := new(big.Int).Mul(m.Num(), new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil))
	a.Quo(a, m.Denom())
	switch {
	case x.integer && m.IsInt() && m.Num().Cmp(big.NewInt(1)) == 0:
		return n.natural
	case !a.IsInt64() || a.Int64() > maxModulus || scale > fractionDigits:
		refuse(x.at, "multiples of "+decimal(m)+" take too many states")
	}
	return n.b.Multiples(int(a.Int64()), scale)
}

// listed matches the numbers of a list, each in the ways to write it without
// an exponent.
func (n *numberer) listed(x *numbers) grammar.Regex {
	var list []grammar.Regex
	for _, r := range x.listed {
		text := n.b.Literal(decimal(r))
		switch {
		case len(x.except) > 0 && r.IsInt(): // all the spellings, where none may be left
			text = n.b.Cat(text, n.zeros)
		case len(x.except) > 0:
			text = n.b.Cat(text, n.b.Times(n.b.Literal("0"), 0, fractionDigits))
		case r.IsInt() && !x.integer:
			text = n.b.Cat(text, n.b.Times(n.b.Literal(".0"), 0, 1))
		}
		if len(x.except) > 0 && r.Sign() == 0 {
			text = n.b.Cat(n.b.Times(n.b.Literal("-"), 0, 1), text)
		}
		list = append(list, text)
	}
	return n.b.Or(list...)
}
