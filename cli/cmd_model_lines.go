package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"unicode/utf8"
)

// lineBytesMax bounds one line of standard input.
const lineBytesMax = 64 << 20

// answerLines answers each line of standard input, a JSON object, with a line on
// standard output. It writes each answer at once, so that another program can ask
// and wait. If answer fails, the line is {"error": …} and the next line is read.
// Blank lines are skipped.
func (c *console) answerLines(answer func(line []byte) (any, error)) error {
	in := bufio.NewReaderSize(c.in, 1<<16)
	if mark, _ := in.Peek(len(byteOrderMark)); string(mark) == byteOrderMark {
		_, _ = in.Discard(len(byteOrderMark))
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	for {
		line, err := readLine(in)
		if err == io.EOF {
			return nil
		}
		var result any
		switch {
		case errors.Is(err, errLongLine):
		case err != nil:
			return err
		case len(bytes.TrimSpace(line)) == 0:
			continue // no line of JSON lines
		case !utf8.Valid(line):
			err = errors.New("the line is not valid UTF-8")
		default:
			result, err = answer(line)
		}
		if err != nil {
			result = map[string]string{"error": err.Error()}
		}
		out.Reset()
		if err := encoder.Encode(result); err != nil {
			return err
		}
		if _, err := c.out.Write(out.Bytes()); err != nil {
			return err
		}
	}
}

const byteOrderMark = "\ufeff"

var errLongLine = fmt.Errorf("the line has more than %d bytes", lineBytesMax)

// readLine reads up to the end of the line or of the input. A line that is too
// long is read to its end and dropped.
func readLine(in *bufio.Reader) (line []byte, err error) {
	long := false
	for {
		piece, err := in.ReadSlice('\n')
		if long = long || len(line)+len(piece) > lineBytesMax; long {
			line = nil
		} else {
			line = append(line, piece...)
		}
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF && (len(line) > 0 || long):
		case err != nil:
			return nil, err
		}
		if long {
			return nil, errLongLine
		}
		return line, nil
	}
}

// jsonWords maps the kinds of request fields to JSON's words for them.
var jsonWords = map[reflect.Kind]string{reflect.String: "a string", reflect.Bool: "true or false", reflect.Map: "an object", reflect.Slice: "an array"}

// decodeLine reads a line into a request and ignores unknown fields.
func decodeLine(line []byte, request any, example string) error {
	err := json.Unmarshal(line, request)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong) && wrong.Field != "":
		return fmt.Errorf("%s: is a JSON %s, not %s; a line is %s", wrong.Field, wrong.Value, jsonWords[wrong.Type.Kind()], example)
	case errors.As(err, &wrong):
		return fmt.Errorf("the line is a JSON %s, not an object; a line is %s", wrong.Value, example)
	case err != nil:
		return fmt.Errorf("%w; a line is %s", err, example)
	}
	return nil
}
