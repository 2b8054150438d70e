package trainers

import (
	"strconv"
	"strings"
)

// splitScript splits a shell script into commands. It expands variables that the script sets; others stay as written.
func splitScript(d *document, script string) (commands [][]token, vars map[string]token, err error) {
	s := shellScanner{d: d, text: script, line: 1, vars: map[string]token{}}
	for s.at < len(s.text) {
		c, err := s.command()
		if err != nil {
			return nil, nil, err
		}
		if s.count += len(c); s.count > maxValues || s.expandedBytes > 2*maxBytes {
			return nil, nil, d.fault(s.line, "", "has too many words for a script that starts a trainer")
		}
		env, rest := splitAssignments(c)
		if len(rest) == 0 {
			for name, v := range env {
				s.vars[name] = v
			}
			continue
		}
		commands = append(commands, c)
	}
	return commands, s.vars, nil
}

// shellScanner splits a shell script into words: quotes, comments, continued lines, variables. It runs nothing.
type shellScanner struct {
	d             *document
	text          string
	at, line      int
	count         int
	expandedBytes int
	vars          map[string]token
	word          strings.Builder
	inWord        bool
	wordLine      int
	collected     []token
}

// command reads up to the end of one command.
func (s *shellScanner) command() ([]token, error) {
	s.collected = nil
	for s.at < len(s.text) {
		c := s.text[s.at]
		switch {
		case c == '\\':
			s.escape()
			continue
		case c == '\'' || c == '"':
			if err := s.readQuoted(c); err != nil {
				return nil, err
			}
			continue
		case c == '$':
			s.expandVariable()
			continue
		case c == '#' && !s.inWord:
			for s.at < len(s.text) && s.text[s.at] != '\n' {
				s.at++
			}
			continue
		}
		s.at++
		switch c {
		case ' ', '\t', '\r':
			s.endWord()
		case '\n', ';', '|', '&', '(', ')':
			s.endWord()
			if c == '\n' {
				s.line++
			}
			return s.collected, nil
		default:
			s.appendText(s.text[s.at-1 : s.at])
		}
	}
	s.endWord()
	return s.collected, nil
}

func (s *shellScanner) appendText(text string) {
	if !s.inWord {
		s.inWord, s.wordLine = true, s.line
	}
	if s.expandedBytes += len(text); s.expandedBytes <= 2*maxBytes { // variables may hold each other, so words can grow
		s.word.WriteString(text)
	}
}

func (s *shellScanner) endWord() {
	if s.inWord {
		s.collected = append(s.collected, token{s.word.String(), s.wordLine})
	}
	s.word.Reset()
	s.inWord = false
}

func (s *shellScanner) escape() {
	s.at++
	if s.at >= len(s.text) {
		return
	}
	rest := s.text[s.at:]
	if strings.HasPrefix(rest, "\r\n") {
		s.at++
	}
	if s.text[s.at] == '\n' {
		s.line++
	} else {
		s.appendText(s.text[s.at : s.at+1])
	}
	s.at++
}

func (s *shellScanner) readQuoted(quote byte) error {
	from := s.line
	s.appendText("")
	s.at++
	for s.at < len(s.text) {
		c := s.text[s.at]
		switch {
		case c == quote:
			s.at++
			return nil
		case quote == '"' && c == '\\' && s.at+1 < len(s.text) && strings.IndexByte("\"\\$`\n", s.text[s.at+1]) >= 0:
			s.escape()
			continue
		case quote == '"' && c == '$':
			s.expandVariable()
			continue
		case c == '\n':
			s.line++
		}
		s.appendText(s.text[s.at : s.at+1])
		s.at++
	}
	return s.d.fault(from, "", "a quote is not closed")
}

// expandVariable appends the value of a variable that the script sets. Other variables stay as written.
func (s *shellScanner) expandVariable() {
	rest := s.text[s.at+1:]
	if strings.HasPrefix(rest, "(") {
		s.substituteDefault(rest)
		return
	}
	name, length := "", 0
	if braced, ok := strings.CutPrefix(rest, "{"); ok {
		if end := strings.IndexByte(braced, '}'); end >= 0 {
			name, length = braced[:end], end+2
		}
	} else {
		for length < len(rest) && isName(rest[length]) {
			length++
		}
		name = rest[:length]
	}
	whole := s.text[s.at : s.at+1+length]
	s.at += 1 + length
	s.line += strings.Count(whole, "\n")
	name, otherwise, hasDefault := strings.Cut(name, ":-")
	v, known := s.vars[name]
	switch {
	case known:
		s.appendText(v.text)
	case hasDefault:
		s.appendText(otherwise)
	default:
		s.appendText(whole)
	}
}

// substituteDefault replaces "$(expr 16 / $n)" and "$((16 / n))" by their results. Other command substitutions stay as
// written: nothing is run.
func (s *shellScanner) substituteDefault(rest string) {
	depth, end := 0, -1
	for i := 0; i < len(rest) && i < 1<<10 && end < 0; i++ {
		switch rest[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				end = i
			}
		}
	}
	if end < 0 {
		s.appendText("$")
		s.at++
		return
	}
	whole := rest[:end+1]
	s.at += 1 + len(whole)
	s.line += strings.Count(whole, "\n")
	if n, ok := s.evaluateArithmetic(whole); ok {
		s.appendText(strconv.Itoa(n))
		return
	}
	s.appendText("$" + whole)
}

// evaluateArithmetic evaluates numbers or variables with operators between them, from left to right. Scripts divide
// batch sizes in this way.
func (s *shellScanner) evaluateArithmetic(text string) (int, bool) {
	inner, ok := strings.CutPrefix(strings.Trim(text, "()"), "expr ")
	if !ok && !strings.HasPrefix(text, "((") {
		return 0, false
	}
	for _, sign := range []string{"*", "/"} {
		inner = strings.ReplaceAll(inner, sign, " "+sign+" ")
	}
	words := strings.Fields(strings.NewReplacer("$", "", "{", "", "}", "", "\\", "").Replace(inner))
	total, sign := 1, "*"
	for i, word := range words {
		if i%2 == 1 {
			sign = word
			continue
		}
		if v, known := s.vars[word]; known {
			word = v.text
		}
		n, err := strconv.ParseInt(word, 10, 16)
		switch {
		case err != nil || n < 1 || total > 1<<32:
			return 0, false
		case sign == "*":
			total *= int(n)
		case sign == "/":
			total /= int(n)
		default:
			return 0, false
		}
	}
	return total, len(words)%2 == 1
}

func isName(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
