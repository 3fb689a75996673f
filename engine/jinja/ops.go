package jinja

import (
	"math"
	"math/big"
	"strings"
)

type binaryExpr struct {
	op          string
	left, right expr
}

func (b *binaryExpr) eval(s *state) any {
	left, right := s.inner(b.left), s.inner(b.right)
	switch b.op {
	case "~":
		return s.join(s.str(left), s.str(right))
	case "+":
		return s.add(left, right)
	}
	left, right = plain(left), plain(right)
	switch b.op {
	case "*":
		if v, ok := s.repeat(left, right); ok {
			return v
		}
		if v, ok := s.repeat(right, left); ok {
			return v
		}
	case "%":
		if text, ok := left.(string); ok {
			return s.percent(text, right)
		}
	}
	return s.arithmetic(b.op, left, right)
}

func (s *state) add(left, right any) any {
	switch x := left.(type) {
	case string, markup:
		switch right.(type) {
		case string, markup:
			return s.joined(left, right)
		}
		s.fail("can only concatenate str (not \"%s\") to str", typeName(right))
	case *List:
		if y, ok := right.(*List); ok && x.Tuple == y.Tuple && x.kind == plainList && y.kind == plainList {
			s.charge(16 * (len(x.Items) + len(y.Items)))
			return &List{Items: append(append([]any{}, x.Items...), y.Items...), Tuple: x.Tuple}
		}
	}
	return s.arithmetic("+", left, right)
}

func (s *state) join(a, b string) string {
	s.charge(len(a) + len(b))
	return a + b
}

// repeat returns a string or list repeated an integer number of times.
func (s *state) repeat(v, times any) (any, bool) {
	n, ok := index(times)
	if !ok {
		return nil, false
	}
	n = max(n, 0)
	switch v := v.(type) {
	case string:
		s.chargeTimes(len(v), n)
		return strings.Repeat(v, int(n)), true
	case *List:
		if v.kind != plainList {
			return nil, false
		}
		s.chargeTimes(16*len(v.Items), n)
		out := &List{Tuple: v.Tuple, Items: []any{}}
		for range n {
			if len(v.Items) == 0 {
				break
			}
			out.Items = append(out.Items, v.Items...)
		}
		return out, true
	}
	return nil, false
}

func (s *state) chargeTimes(bytes int, n int64) {
	n = max(n, 0)
	if bytes > 0 && n > int64(s.limits.Bytes/bytes) {
		s.exceed("bytes", s.limits.Bytes)
	}
	if bytes > 0 {
		s.charge(bytes * int(n))
	}
}

const bigBitsMax = 1024 // of an integer result

func (s *state) arithmetic(op string, left, right any) any {
	x, xf, xIsFloat, xok := number(left)
	y, yf, yIsFloat, yok := number(right)
	if u, ok := left.(Undefined); ok {
		s.fail("%s", u.what())
	}
	if u, ok := right.(Undefined); ok {
		s.fail("%s", u.what())
	}
	if !xok || !yok {
		s.fail("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(left), typeName(right))
	}
	if (op == "/" || op == "//" || op == "%") && yf == 0 {
		s.fail("division by zero")
	}
	if xIsFloat || yIsFloat || op == "/" || op == "**" && yf < 0 {
		return floatArithmetic(op, xf, yf)
	}
	out := new(big.Int)
	switch op {
	case "+":
		out.Add(x, y)
	case "-":
		out.Sub(x, y)
	case "*":
		out.Mul(x, y)
	case "//":
		floorDivide(out, new(big.Int), x, y)
	case "%":
		floorDivide(new(big.Int), out, x, y)
	case "**":
		if x.BitLen() > 1 && (!y.IsInt64() || y.Int64() > bigBitsMax || int64(x.BitLen())*y.Int64() > bigBitsMax) {
			s.exceed("bits of a number", bigBitsMax)
		}
		if x.BitLen() <= 1 {
			y = new(big.Int).And(y, big.NewInt(1)) // for the bases 0, 1 and -1 only its parity counts
			if x.Sign() == 0 && yf != 0 {
				return int64(0)
			}
		}
		out.Exp(x, y, nil)
	}
	if out.BitLen() > bigBitsMax {
		s.exceed("bits of a number", bigBitsMax)
	}
	return small(out)
}

// floorDivide rounds down, as Python does.
func floorDivide(quotient, rest, x, y *big.Int) {
	quotient.QuoRem(x, y, rest)
	if rest.Sign() != 0 && rest.Sign() != y.Sign() {
		quotient.Sub(quotient, big.NewInt(1))
		rest.Add(rest, y)
	}
}

func floatArithmetic(op string, x, y float64) any {
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "/":
		return x / y
	case "//":
		quotient := (x - floatMod(x, y)) / y
		whole := math.Floor(quotient)
		if quotient-whole > 0.5 {
			whole++
		}
		return whole
	case "%":
		return floatMod(x, y)
	}
	return math.Pow(x, y)
}

// floatMod returns x mod y with the sign of y, as in Python.
func floatMod(x, y float64) float64 {
	rest := math.Mod(x, y)
	switch {
	case rest == 0:
		return math.Copysign(0, y)
	case (rest < 0) != (y < 0):
		return rest + y
	}
	return rest
}
