package chat

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// strftime formats t like Python's datetime.now().strftime with glibc in the C
// locale. It supports flags, widths and the modifiers E and O. %z and %Z are
// empty, because that time has no zone. An unknown field stays unchanged.
func strftime(t time.Time, format string) (string, error) {
	const outMax = 1 << 10
	var b strings.Builder
	for rest := format; rest != ""; {
		before, after, found := strings.Cut(rest, "%")
		b.WriteString(before)
		rest = after
		if found {
			text, length := field(t, after)
			b.WriteString(text)
			rest = after[length:]
		}
		if b.Len() > outMax {
			return "", errors.New("strftime_now: the format is too long")
		}
	}
	return b.String(), nil
}

// field formats the field at the start of spec, which follows a %. length is the
// number of bytes that it takes in spec.
func field(t time.Time, spec string) (text string, length int) {
	pad, upper, swap, i := byte(0), false, false, 0
flags:
	for ; i < len(spec); i++ {
		switch spec[i] {
		case '_', '-', '0':
			pad = spec[i]
		case '^':
			upper = true
		case '#':
			swap = true
		default:
			break flags
		}
	}
	from := i
	for i < len(spec) && spec[i] >= '0' && spec[i] <= '9' {
		i++
	}
	width, err := strconv.Atoi("0" + spec[from:i])
	if i < len(spec) && (spec[i] == 'E' || spec[i] == 'O') {
		i++
	}
	if err != nil || width > 1000 || i >= len(spec) {
		return "%" + spec[:i], i
	}
	text, digits, zero := verb(t, spec[i])
	switch {
	case digits == unknown:
		return "%" + spec[:i+1], i + 1
	case upper, swap && strings.IndexByte("aAbBh", spec[i]) >= 0:
		text = strings.ToUpper(text)
	case swap:
		text = strings.ToLower(text)
	}
	switch pad {
	case '-':
		digits, zero = 0, " "
	case '_', '0':
		zero = map[byte]string{'_': " ", '0': "0"}[pad]
	}
	if zero != "" {
		text = strings.Repeat(zero, max(max(digits, width)-len(text), 0)) + text
	}
	return text, i + 1
}

const unknown = -1

// layouts has Go's layouts for the fields that are words.
var layouts = map[byte]string{
	'B': "January", 'b': "Jan", 'h': "Jan", 'A': "Monday", 'a': "Mon", 'p': "PM", 'P': "pm",
	'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06", 'r': "03:04:05 PM",
	'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05", 'z': "", 'Z': "",
}

// verb returns the text of one field without padding, the least number of its
// digits, and the padding. digits is 0 for a word and unknown for an unknown
// field.
func verb(t time.Time, c byte) (text string, digits int, zero string) {
	if layout, ok := layouts[c]; ok {
		return t.Format(layout), 0, " "
	}
	number := func(n, digits int, zero string) (string, int, string) { return strconv.Itoa(n), digits, zero }
	isoYear, isoWeek := t.ISOWeek()
	weekday, hour := int(t.Weekday()), (t.Hour()+11)%12+1
	switch c {
	case '%', 'n', 't':
		return map[byte]string{'%': "%", 'n': "\n", 't': "\t"}[c], 0, ""
	case 'f': // Python's own, without flags
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), 0, ""
	case 's':
		return strconv.FormatInt(t.Unix(), 10), 1, "0"
	case 'Y', 'G':
		return number(map[byte]int{'Y': t.Year(), 'G': isoYear}[c], 1, "0")
	case 'C':
		return number(t.Year()/100, 2, "0")
	case 'y', 'g':
		return number(map[byte]int{'y': t.Year(), 'g': isoYear}[c]%100, 2, "0")
	case 'm':
		return number(int(t.Month()), 2, "0")
	case 'd':
		return number(t.Day(), 2, "0")
	case 'e':
		return number(t.Day(), 2, " ")
	case 'H', 'I':
		return number(map[byte]int{'H': t.Hour(), 'I': hour}[c], 2, "0")
	case 'k', 'l':
		return number(map[byte]int{'k': t.Hour(), 'l': hour}[c], 2, " ")
	case 'M':
		return number(t.Minute(), 2, "0")
	case 'S':
		return number(t.Second(), 2, "0")
	case 'j':
		return number(t.YearDay(), 3, "0")
	case 'u':
		return number((weekday+6)%7+1, 1, "0")
	case 'w':
		return number(weekday, 1, "0")
	case 'U':
		return number((t.YearDay()+6-weekday)/7, 2, "0")
	case 'W':
		return number((t.YearDay()+6-(weekday+6)%7)/7, 2, "0")
	case 'V':
		return number(isoWeek, 2, "0")
	}
	return "", unknown, ""
}
