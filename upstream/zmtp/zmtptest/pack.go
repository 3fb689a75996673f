package zmtptest

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Pack appends a value as MessagePack.
func Pack(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, 0xc0)
	case int:
		if v >= 0 && v < 128 {
			return append(b, byte(v))
		}
		return binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(v))
	case float64:
		return binary.BigEndian.AppendUint64(append(b, 0xcb), math.Float64bits(v))
	case string:
		return append(append(b, 0xd9, byte(len(v))), v...)
	case []byte:
		return append(append(b, 0xc4, byte(len(v))), v...)
	case []int32:
		b = binary.BigEndian.AppendUint16(append(b, 0xdc), uint16(len(v)))
		for _, x := range v {
			b = Pack(b, int(x))
		}
		return b
	case List:
		b = binary.BigEndian.AppendUint16(append(b, 0xdc), uint16(len(v)))
		for _, x := range v {
			b = Pack(b, x)
		}
		return b
	case Pairs:
		b = append(b, 0x80|byte(len(v)/2))
		for _, x := range v {
			b = Pack(b, x)
		}
		return b
	}
	panic(fmt.Sprintf("%T", v))
}

type (
	// List is a list of values.
	List []any
	// Pairs is a map, of at most 15 names, each with its value after it.
	Pairs []any
)
