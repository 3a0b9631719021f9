import time,jax,jax.numpy as jnp,numpy as np,optax,sys
from exburn import optimizers as O
print(jax.__version__,optax.__version__,jax.devices())
rng=np.random.default_rng(0); D=[784,256,128,10]
params={f'd{i}':{'kernel':rng.normal(size=(a,b)).astype(np.float32)*.05,'bias':np.zeros(b,np.float32)} for i,(a,b) in enumerate(zip(D,D[1:]))}
X=jnp.asarray(rng.normal(size=(60000,784)).astype(np.float32)); Y=jnp.asarray(rng.integers(0,10,60000))
def loss(p,x,y):
    for i in range(3):
        x=x@p[f'd{i}']['kernel']+p[f'd{i}']['bias']
        if i<2:x=jax.nn.relu(x)
    return optax.softmax_cross_entropy_with_integer_labels(x,y).mean()
def bench(name,init,upd):
    p=jax.device_put(params); s=init(p)
    perm=jnp.asarray(rng.permutation(60000)[:59968].reshape(-1,32))
    def step(c,i):
        p,s=c; l,g=jax.value_and_grad(loss)(p,X[i],Y[i]); return upd(g,s,p),l
    @jax.jit
    def run(p,s,perm): return jax.lax.scan(step,(p,s),perm,unroll=4)
    t=time.time();(p2,s2),l=jax.block_until_ready(run(p,s,perm));c=time.time()-t
    ts=[]
    for _ in range(5):
        t=time.time();jax.block_until_ready(run(p,s,perm));ts.append(time.time()-t)
    print(f'{name:28s} compile {c:5.1f}s  {59968/min(ts):12,.0f} samples/s  loss {float(l[-50:].mean()):.4f}',flush=True)
def ox(tx):
    def u(g,s,p):
        d,s=tx.update(g,s,p); return optax.apply_updates(p,d),s
    return tx.init,u
def ex(o): return o.init,o.update
bench('optax.adam',*ox(optax.adam(1e-3)))
bench('optax.adam injected',*ox(optax.inject_hyperparams(optax.adam,static_args=('b1','b2','eps','eps_root'))(learning_rate=1e-3)))
bench('Adam',*ex(O.Adam()))
bench('optax.adam again',*ox(optax.adam(1e-3)))
bench('Adam again',*ex(O.Adam()))
bench('Adam cosine schedule',*ex(O.Adam(O.schedules.CosineDecay(1e-3,2000))))
bench('OptaxOptimizer(optax.adam)',*ex(O.OptaxOptimizer(optax.adam,1e-3)))
bench('optax.sgd mom',*ox(optax.sgd(1e-2,.9)))
bench('SGD',*ex(O.SGD(1e-2)))
bench('AdamW clip ema',*ex(O.AdamW(global_clipnorm=1.,use_ema=True)))
bench('optax adamw clip',*ox(optax.chain(optax.clip_by_global_norm(1.),optax.adamw(1e-3))))
