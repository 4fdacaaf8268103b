package lifecycle

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
)

// Test is a sentence about Kubernetes' volumes, and how to check it.
type Test struct {
	// Topic is what the sentence is about, Name the sentence.
	Topic, Name string
	// Disturbs says that the test does something to a node that other tests would notice.
	Disturbs bool

	run func(ctx context.Context, t *bench) error
}

// String is the topic and the sentence, as they are printed and selected.
func (t Test) String() string { return t.Topic + ": " + t.Name }

// All are the tests, in the order in which they begin. Those that take longest come first.
func All() []Test {
	return slices.Concat(capacityTests, resizeTests, mountTests, attachTests, snapshotTests, exampleTests, sharedTests,
		dynamicTests, bindingTests, registrationTests, answerTests)
}

// Select returns the tests whose topic and name match the expression. It fails if none does.
func Select(expression string) ([]Test, error) {
	pattern, err := regexp.Compile(expression)
	if err != nil {
		return nil, fmt.Errorf("read the expression that selects tests: %w", err)
	}
	list := slices.DeleteFunc(All(), func(t Test) bool { return !pattern.MatchString(t.String()) })
	if len(list) == 0 {
		return nil, fmt.Errorf("no test matches %q", expression)
	}
	return list, nil
}

// List prints a line for each test.
func List(w io.Writer, tests []Test) {
	for _, t := range tests {
		fmt.Fprintln(w, t)
	}
}
