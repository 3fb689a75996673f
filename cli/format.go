package cli

import (
	"fmt"
	"io"
	"os"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// millis prints a time in milliseconds, rounded for reading.
func millis(ms float64) string {
	d := time.Duration(ms * float64(time.Millisecond))
	if d.Abs() >= time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}

// fineMillis is millis with two decimals for short times.
func fineMillis(ms float64) string {
	if ms > 0 && ms < 10 {
		return fmt.Sprintf("%.2fms", ms)
	}
	return millis(ms)
}

// difference prints y - x, both in milliseconds, with its sign.
func difference(x, y float64) string {
	if y < x {
		return "-" + fineMillis(x-y)
	}
	return "+" + fineMillis(y-x)
}

// size prints a number of bytes for people.
func size(n int) string {
	x, unit := float64(n), 0
	for x >= 1024 && unit < 4 {
		x, unit = x/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f %s", x, [...]string{"", "KiB", "MiB", "GiB", "TiB"}[unit])
}

// cutLine returns the first width characters of line.
func cutLine(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:max(0, width)])
}

// terminal tells whether w is a terminal, and how many columns it has.
func terminal(w io.Writer) (width int, ok bool) {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return 0, false
	}
	const unknown = 80
	if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
		return width, true
	}
	return unknown, true
}
