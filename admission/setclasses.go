package admission

import (
	"fmt"
	"slices"
)

func newClass(c Class) *class {
	return &class{Class: c, level: levelOf(&c), held: map[*tenant]*line{}, margin: newMargin(levelOf(&c))}
}

// SetClasses gives classes other goals and limits, and adds those that are new. What
// has begun keeps its order and its promise. A class that table leaves out keeps its
// settings and what it holds, and is not named by policies any more. The error says
// which class would change its level, and changes nothing.
func (s *Scheduler) SetClasses(table []Class) error {
	for i := range table {
		c := &table[i]
		if k := s.byName[c.Name]; k != nil && k.level != levelOf(c) {
			return fmt.Errorf("classes: %s is of the level %s until a restart; give the class of the level %s another name", c.Name, levelNames[k.level], c.Level)
		}
	}
	for _, c := range table {
		if k := s.byName[c.Name]; k != nil {
			k.Class = c
			continue
		}
		k := newClass(c)
		s.byName[c.Name] = k
		after := slices.IndexFunc(s.classes, func(other *class) bool { return other.level > k.level })
		if after < 0 {
			after = len(s.classes)
		}
		s.classes = slices.Insert(s.classes, after, k)
		l := &s.levels[k.level]
		l.classes = append(l.classes, k)
	}
	return nil
}

// SetClasses is Scheduler.SetClasses.
func (q *Queue) SetClasses(table []Class) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.scheduler.SetClasses(table)
	q.pump()
	return err
}
