package tokenizer

// byteAlphabet is GPT-2's alphabet of bytes: printable bytes stand for themselves,
// the others become the characters from U+0100 on.
var byteAlphabet = func() (table [256]rune) {
	next := rune(256)
	for c := range table {
		if c >= '!' && c <= '~' || c >= 0xa1 && c <= 0xac || c >= 0xae {
			table[c] = rune(c)
		} else {
			table[c] = next
			next++
		}
	}
	return table
}()

// alphabetByte is the inverse of byteAlphabet; none means no byte.
var alphabetByte = func() (table [256 + 68]int16) {
	for r := range table {
		table[r] = int16(none)
	}
	for c, r := range byteAlphabet {
		table[r] = int16(c)
	}
	return table
}()

// alphabetBytes decodes a token's text to bytes. Text outside of the alphabet
// stands for itself.
func alphabetBytes(text string) string {
	var few [64]byte
	b := few[:0]
	for _, r := range text {
		if int(r) >= len(alphabetByte) || alphabetByte[r] < 0 {
			return text
		}
		b = append(b, byte(alphabetByte[r]))
	}
	if string(b) == text {
		return text
	}
	return string(b)
}
