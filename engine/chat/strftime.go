package chat

import (
	"fmt"
	"strings"
	"time"
)

// strftime prints t as C's strftime does in the C locale.
func strftime(t time.Time, format string) (string, error) {
	const outMax = 1 << 10
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		bare := format[i] == '-' && i+1 < len(format)
		if bare {
			i++
		}
		text, err := field(t, format[i])
		if err != nil {
			return "", err
		}
		if bare {
			text = strings.TrimLeft(text[:len(text)-1], "0 ") + text[len(text)-1:]
		}
		b.WriteString(text)
		if b.Len() > outMax {
			return "", fmt.Errorf("strftime_now: the format is too long")
		}
	}
	return b.String(), nil
}

// layouts are Go's for the fields that it knows.
var layouts = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'H': "15", 'I': "03", 'M': "04", 'S': "05",
	'B': "January", 'b': "Jan", 'h': "Jan", 'A': "Monday", 'a': "Mon", 'p': "PM", 'z': "-0700", 'Z': "MST",
	'j': "002", 'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06",
	'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
}

func field(t time.Time, verb byte) (string, error) {
	switch verb {
	case '%', 'n', 't':
		return map[byte]string{'%': "%", 'n': "\n", 't': "\t"}[verb], nil
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), nil
	case 's':
		return fmt.Sprint(t.Unix()), nil
	case 'w':
		return fmt.Sprint(int(t.Weekday())), nil
	case 'u':
		return fmt.Sprint((int(t.Weekday())+6)%7 + 1), nil
	}
	if layout, ok := layouts[verb]; ok {
		return t.Format(layout), nil
	}
	return "", fmt.Errorf("strftime_now: %%%c is not supported", verb)
}
