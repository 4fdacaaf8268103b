package fake

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// call runs a method that begins an operation: faults first, then do under mu, then the log.
func (p *platform) call(ctx context.Context, method Method, id string,
	do func(effect) (*operation, error)) (provisioner.Operation, error) {
	plan, err := p.enter(ctx, method, id, "")
	if err != nil {
		return nil, p.leave(method, id, "", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now()
	op, err := do(plan)
	if p.logLocked(method, id, "", err) != nil {
		return nil, err
	}
	return op, nil
}

// read runs a method that changes nothing: faults first, then do under mu, then the log.
func read[T any](ctx context.Context, p *platform, method Method, id string, do func() (T, error)) (T, error) {
	var none T
	if _, err := p.enter(ctx, method, id, ""); err != nil {
		return none, p.leave(method, id, "", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now()
	found, err := do()
	if p.logLocked(method, id, "", err) != nil {
		return none, err
	}
	return found, nil
}

// list reads the resources of a kind within the scope, ordered by ID.
func list[R interface{ seen() S }, S any](ctx context.Context, p *platform, method Method, all map[string]R,
	scope provisioner.Scope) ([]S, error) {
	return read(ctx, p, method, scope.ResourceGroup, func() ([]S, error) {
		if !p.groupExists(scope.ResourceGroup) {
			return nil, provisioner.Errorf(provisioner.NotFound, "resource group %q does not exist", scope.ResourceGroup)
		}
		var found []S
		for _, id := range slices.Sorted(maps.Keys(all)) {
			if within(id, scope) {
				found = append(found, all[id].seen())
			}
		}
		return found, nil
	})
}

func within(id string, scope provisioner.Scope) bool {
	r, err := parse(id)
	return err == nil && strings.EqualFold(r.subscription, scope.SubscriptionID) &&
		strings.EqualFold(r.group, scope.ResourceGroup)
}
