//go:build !amd64 || purego

package probe

// Loops lists nothing: no vector arithmetic is built here.
func Loops() []Loop { return nil }

func read(p *byte, rounds int) { readWords(p, rounds) }
