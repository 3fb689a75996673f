"""Makes unigram.json: pip install sentencepiece protobuf tokenizers, then run it in an empty folder."""
import sentencepiece as spm, random, json, base64, sys
from tokenizers import Tokenizer, normalizers, pre_tokenizers, models, Regex, decoders, processors
from sentencepiece import sentencepiece_model_pb2 as pb
random.seed(5)
words="the sea side seaside house boats bo at sails over a quiet bay and the moon rises above über café naïve Straße 東京 は 大きい 街 です hello world world's 12 345 6,789 e-mail".split()
with open('corpus.txt','w') as f:
    for _ in range(3000): f.write(' '.join(random.choice(words)+random.choice(['','','s','!','?',',','er','ing']) for _ in range(random.randint(3,12)))+'\n')
rules=[]
def r(a,b): rules.append(' '.join('%04X'%ord(c) for c in a)+'\t'+' '.join('%04X'%ord(c) for c in b))
for a,b in [('\t',' '),('\n',' '),('\u00a0',' '),('\u3000',' '),('\u200b',''),('ﬁ','fi'),('ﬀ','ff'),('①','1'),('Ａ','A'),('ａ','a'),('１','1'),('e\u0301','é'),('u\u0308','ü'),('ｶ\uff9e','ガ'),('ｶ','カ'),('…','...'),('™','TM'),('ß\u0301','X')]: r(a,b)
open('rules.tsv','w').write('\n'.join(rules)+'\n')
def train(name,**k):
    spm.SentencePieceTrainer.train(input='corpus.txt',model_prefix=name,model_type='unigram',vocab_size=160,character_coverage=0.995,minloglevel=2,**k)
    m=pb.ModelProto(); m.ParseFromString(open(name+'.model','rb').read()); return m
def build(m, variant):
    vocab=[[p.piece,p.score] for p in m.pieces]
    vocab=[['<s>',0.0],['<pad>',0.0],['</s>',0.0],['<unk>',0.0]]+vocab[3:]
    cm=base64.b64encode(m.normalizer_spec.precompiled_charsmap).decode()
    pre={"type":"Precompiled","precompiled_charsmap":cm}
    rep=lambda c:{"type":"Replace","pattern":{"Regex":" {2,}"},"content":c}
    meta={"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":True}
    n={"words":pre,"strip":{"type":"Sequence","normalizers":[pre,{"type":"Strip","strip_left":False,"strip_right":True},rep("▁")]},"joined":{"type":"Sequence","normalizers":[pre,rep(" ")]}}[variant]
    pt={"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},meta]} if variant=="words" else meta
    return {"version":"1.0","truncation":None,"padding":None,"added_tokens":[{"id":i,"content":t,"single_word":False,"lstrip":False,"rstrip":False,"normalized":False,"special":True} for i,t in enumerate(['<s>','<pad>','</s>','<unk>'])],
     "normalizer":n,"pre_tokenizer":pt,"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"</s>","type_id":0}}],
     "pair":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"</s>","type_id":0}},{"SpecialToken":{"id":"</s>","type_id":0}},{"Sequence":{"id":"B","type_id":0}},{"SpecialToken":{"id":"</s>","type_id":0}}],
     "special_tokens":{"<s>":{"id":"<s>","ids":[0],"tokens":["<s>"]},"</s>":{"id":"</s>","ids":[2],"tokens":["</s>"]}}},
     "decoder":{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":True},"model":{"type":"Unigram","unk_id":3,"vocab":vocab,"byte_fallback":False}}
def texts(n):
    parts=words+[' ','  ','\t','\n','\u00a0','\u3000','\u200b','ﬁ','ﬀ','①','Ａ','ａ','１','e\u0301','u\u0308','ｶ\uff9e','ｶ','…','™','q','zzz','🙂','▁','<s>x','ß\u0301','Ω','e\u0302']
    return ['',' ','a','  a  b ']+[''.join(random.choice(parts)+random.choice(['',' ']) for _ in range(random.randint(1,14))) for _ in range(n)]
if __name__=='__main__':
    m=train('small',normalization_rule_tsv='rules.tsv')
    sp=spm.SentencePieceProcessor(model_file='small.model')
    ts=texts(200)
    ts=[t.replace('<s>','<q>') for t in ts]
    out={"tokenizers":{},"texts":ts,"ids":{}}
    for v in ("words","strip","joined"):
        d=build(m,v); tk=Tokenizer.from_str(json.dumps(d))
        out["tokenizers"][v]=d; out["ids"][v]=[tk.encode(t,add_special_tokens=False).ids for t in ts]
    dif=0
    for t,i in zip(ts,out["ids"]["words"]):
        e=[x+1 if x>=3 else 3 for x in sp.encode(t)]
        if e!=i: dif+=1; print(repr(t),i,e) if dif<6 else 0
    print('differ from sentencepiece',dif,'of',len(ts))
    json.dump(out,open('unigram.json','w'),ensure_ascii=False,separators=(',',':'))
